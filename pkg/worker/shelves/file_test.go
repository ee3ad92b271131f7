package shelves

import (
	"bytes"
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// onDisk are Shelves with a directory, and what they log.
type onDisk struct {
	*Shelves
	t   *testing.T
	o   Options
	log *bytes.Buffer
}

func openDisk(t *testing.T, change func(o *Options)) *onDisk {
	t.Helper()
	log := new(bytes.Buffer)
	// Not t.TempDir, which may be memory.
	dir, err := os.MkdirTemp("/var/tmp", "rdistcc-shelves-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type == unix.TMPFS_MAGIC || fs.Bavail < fs.Blocks/freeShare+1<<30/uint64(fs.Bsize) {
		t.Skip("needs a disk of which more than a tenth and 1 GiB is free")
	}
	o := Options{Budget: 16 << 20, Keep: time.Hour, Dir: filepath.Join(dir, "results"), Disk: 256 << 20, Log: slog.New(slog.NewTextHandler(log, nil))}
	if change != nil {
		change(&o)
	}
	d := &onDisk{t: t, o: o, log: log, Shelves: New(o)}
	t.Cleanup(func() { d.Close() })
	return d
}

// again ends the Shelves as a daemon does that stops, and opens them as the next one does.
func (d *onDisk) again() {
	d.t.Helper()
	for _, t := range d.tenants {
		for t.conns > 0 {
			d.Leave(t)
		}
	}
	d.Close()
	d.log.Reset()
	d.Shelves = New(d.o)
}

// crash ends the Shelves, and has x's file be as if the machine had gone down meanwhile. It returns the file.
func (d *onDisk) crash(x *Tenant) *os.File {
	d.t.Helper()
	d.Leave(x)
	d.Close()
	f, err := os.OpenFile(x.file.f.Name(), os.O_RDWR, 0)
	d.must(err)
	o, ok := readOwner(f)
	if !ok || o.boot != 0 {
		d.t.Errorf("%+v after a daemon that has ended", o)
	}
	o.boot = 12345
	d.must(o.write(f))
	return f
}

// join joins as a tenant whose shelf is to be in a file, or not.
func (d *onDisk) join(name string, file bool) *Tenant {
	d.t.Helper()
	x := join(d.t, d.Shelves, name)
	if x == nil || (x.Source() != nil) != file || file == (x.Mem() != nil) || x.Len() == 0 {
		d.t.Fatalf("%s: %+v", name, x)
	}
	return x
}

// put puts entries with outputs of length bytes, and waits until they are written.
func (d *onDisk) put(x *Tenant, from, to byte, length int) {
	d.t.Helper()
	for n := from; n < to; n++ {
		e := entry(d.t, n, length)
		for !x.Put(key(n), e[:10], e[10:]) {
			time.Sleep(time.Millisecond) // the queue is full
		}
	}
	d.until(func() bool { return x.file.waiting.Load() == 0 })
}

func (d *onDisk) until(ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("not within a minute\n%s", d.log)
		}
	}
}

func key(n byte) resultcache.Key { return resultcache.Key{n, 1} }

func entry(t *testing.T, n byte, length int) []byte {
	t.Helper()
	r := resultcache.Raw{Key: key(n), Files: []resultcache.RawFile{{Len: uint32(length)}}, Outputs: bytes.Repeat([]byte{n}, length)}
	front, err := r.AppendFront(nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(front, r.Outputs...)
}

// reader reads a shelf as a client does, by RDMA Reads.
type reader struct {
	t *testing.T
	x *Tenant
	shelf.Index
}

func (r *reader) read(off, n uint64) []byte {
	r.t.Helper()
	b := make([]byte, n)
	if k, err := r.x.Source().ReadAt(b, int64(off)); k != len(b) || err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *reader) refresh() {
	r.t.Helper()
	h, err := shelf.ParseHead(r.read(0, shelf.HeadLen), r.x.Len())
	if err == nil {
		err = r.Learn(h)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for {
		off, n := r.Next()
		if n == 0 {
			return
		}
		r.Add(r.read(off, n))
	}
}

// has returns which of the entries before n are there. Those that are must be whole.
func (r *reader) has(n byte) (all string) {
	r.t.Helper()
	r.refresh()
	for i := range n {
		p, ok := r.Find(key(i))
		if !ok {
			continue
		}
		if _, err := resultcache.Decode(r.read(p.Off, uint64(p.Len)), key(i), func(n int) ([]byte, error) { return make([]byte, n), nil }); err != nil {
			if r.refresh(); r.Counts(p) {
				r.t.Fatalf("entry %d: %v", i, err)
			}
			continue
		}
		all += string('a' + rune(i))
	}
	return all
}

// TestRestart: what is in a file is there again after a restart, for its tenant alone, and the shelf goes on.
func TestRestart(t *testing.T) {
	d := openDisk(t, nil)
	a, b := d.join("a", true), d.join("b", true)
	d.put(a, 0, 3, 50000)
	d.put(b, 3, 4, 100)
	for range 2 {
		d.again()
		a, b = d.join("a", true), d.join("b", true)
		ra, rb := &reader{t: t, x: a}, &reader{t: t, x: b}
		if got := ra.has(9) + " " + rb.has(9); got != "abc d" && got != "abce d" || d.log.Len() > 0 {
			t.Errorf("%s\n%s", got, d.log)
		}
		d.put(a, 4, 5, 1000)
		if got := ra.has(9); got != "abce" {
			t.Errorf("%s are there after one more", got)
		}
	}
	if st := d.Stats(); st.Tenants != 2 || st.Disk != st.Bytes || st.Bytes < 150000 || st.Entries != 6 {
		t.Errorf("%+v", st)
	}
	info, err := os.Stat(a.file.f.Name())
	if err != nil || info.Mode() != 0o600 || strings.Contains(info.Name(), "a"+suffix) && len(info.Name()) < 20 {
		t.Errorf("%v %v", info, err)
	}
	// A tenant whose file is given another one's name does not get to see it.
	for name, x := range d.tenants {
		for x.conns > 0 {
			d.Leave(x)
		}
		_ = name
	}
	d.Close()
	if err := os.Rename(a.file.f.Name(), b.file.f.Name()); err != nil {
		t.Fatal(err)
	}
	d.Shelves = New(d.o)
	if got := (&reader{t: t, x: d.join("b", true)}).has(9); got != "" {
		t.Errorf("a tenant sees %s of another one", got)
	}
}

// TestRenamed: a file that gets another tenant's name while the daemon runs is not that tenant's either.
func TestRenamed(t *testing.T) {
	d := openDisk(t, nil)
	a := d.join("a", true)
	d.put(a, 0, 3, 100)
	d.must(os.Rename(a.file.f.Name(), d.dir.file("b")))
	if got := (&reader{t: t, x: d.join("b", true)}).has(9); got != "" {
		t.Errorf("a tenant sees %s of another one", got)
	}
}

// TestFilesOfNoUse: a file of another version, size or owner, or with a broken head, is made anew, and one line says so.
func TestFilesOfNoUse(t *testing.T) {
	for what, break_ := range map[string]func(d *onDisk, name string){
		"another size": func(d *onDisk, _ string) { d.o.Disk *= 2 },
		"mode":         func(d *onDisk, name string) { d.must(os.Chmod(name, 0o644)) },
		"two names":    func(d *onDisk, name string) { d.must(os.Link(name, name+"2")) },
		"head":         func(d *onDisk, name string) { d.scribble(name, 20) },
		"version":      func(d *onDisk, name string) { d.scribble(name, 7) },
		"owner":        func(d *onDisk, name string) { d.scribble(name, shelf.SpareAt+ownerName+4) },
		"kind":         func(d *onDisk, name string) { d.scribble(name, shelf.SpareAt) },
		"cut short":    func(d *onDisk, name string) { d.must(os.Truncate(name, 5000)) },
		"a link": func(d *onDisk, name string) {
			d.must(os.Rename(name, name+"2"))
			d.must(os.Symlink(name+"2", name))
		},
	} {
		d := openDisk(t, nil)
		x := d.join("a", true)
		d.put(x, 0, 3, 100)
		d.Leave(x)
		d.Close()
		break_(d, x.file.f.Name())
		d.log.Reset()
		d.Shelves = New(d.o)
		x = d.join("a", true)
		d.put(x, 5, 6, 100)
		if got := (&reader{t: t, x: x}).has(9); got != "f" || strings.Count(d.log.String(), "\n") != 1 && what != "a link" {
			t.Errorf("%s: %s\n%s", what, got, d.log)
		}
	}
}

func (d *onDisk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// scribble flips a bit of a file.
func (d *onDisk) scribble(name string, at int64) {
	d.t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	d.must(err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	d.must(err)
	b[0] ^= 4
	_, err = f.WriteAt(b, at)
	d.must(err)
}

// TestPowerFailure: after the machine has gone down, entries that are damaged are not there. Until that is known, nothing
// is, and a client that is connected already sees the rest then.
func TestPowerFailure(t *testing.T) {
	d := openDisk(t, nil)
	x := d.join("a", true)
	d.put(x, 0, 5, 30000)
	f := d.crash(x)
	junk := make([]byte, 10000)
	rand.Read(junk)
	_, err := f.WriteAt(junk, int64(x.Shelf.Data())-step+40000) // in the second one
	d.must(err)
	f.Close()
	d.log.Reset()
	d.Shelves = New(d.o)
	x = d.join("a", true)
	r := &reader{t: t, x: x}
	d.until(func() bool { return r.has(9) == "acde" })
	if log := d.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "dropped=1") {
		t.Error(log)
	}
	d.put(x, 6, 7, 100)
	if got := r.has(9); got != "acdeg" {
		t.Error(got)
	}
	// While the file is in use, it says so.
	f, err = os.Open(f.Name())
	d.must(err)
	defer f.Close()
	if o, ok := readOwner(f); !ok || o.boot != bootID() {
		t.Errorf("%+v", o)
	}
}

// TestVerifiedBeforeItIsDivided: a file that is verified before it is known what part of the disk it may have keeps what it has.
func TestVerifiedBeforeItIsDivided(t *testing.T) {
	d := openDisk(t, nil)
	x := d.join("a", true)
	d.put(x, 0, 5, 30000)
	d.crash(x).Close()
	files := d.o.Dir
	d.o.Dir = ""
	d.Shelves = New(d.o) // finds no files
	var err error
	d.dir, err = openDir(files)
	d.must(err)
	x, err = d.openFile("a")
	d.must(err)
	d.Shelves.tenants["a"] = x // which is closed with the others
	d.until(func() bool { return !x.file.hidden.Load() })
	if got := (&reader{t: t, x: x}).has(9); got != "abcde" {
		t.Errorf("%q is left", got)
	}
}

// TestKilledDaemon: what was written is there after the daemon was killed, without a look at the entries.
func TestKilledDaemon(t *testing.T) {
	d := openDisk(t, nil)
	x := d.join("a", true)
	d.put(x, 0, 5, 30000)
	d.dir.lock.Close() // as the system does
	d.Shelves = New(d.o)
	if got := (&reader{t: t, x: d.join("a", true)}).has(9); got != "abcde" || d.log.Len() > 0 {
		t.Errorf("%s\n%s", got, d.log)
	}
}

// TestTwoDaemons: the second daemon in a directory keeps results in memory, and says so once.
func TestTwoDaemons(t *testing.T) {
	d := openDisk(t, nil)
	var log bytes.Buffer
	o := d.o
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	two := New(o)
	defer two.Close()
	for _, name := range []string{"a", "b"} {
		if x := join(t, two, name); x == nil || x.Source() != nil {
			t.Errorf("%+v", x)
		}
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "another daemon's") {
		t.Error(log.String())
	}
	o.Budget = 0
	if none := New(o); none != nil {
		t.Error("shelves without memory and without a directory")
	}
}

// TestTruncated: somebody cuts the file short while clients read it. They find nothing any more, but their Reads are
// answered as those of a shelf that has dropped its results. The tenant's next connection has a shelf in memory, and
// other tenants keep theirs.
func TestTruncated(t *testing.T) {
	for _, at := range []int64{0, 100, 1 << 20} {
		d := openDisk(t, nil)
		x, other := d.join("a", true), d.join("b", true)
		d.put(x, 0, 5, 2<<20)
		d.put(other, 0, 1, 100)
		r := &reader{t: t, x: x}
		if got := r.has(9); got != "abcde" {
			t.Fatal(got)
		}
		d.must(os.Truncate(x.file.f.Name(), at))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				r := &reader{t: t, x: x, Index: r.Index}
				for i := range 50 {
					if p, ok := r.Find(key(byte(i % 5))); ok {
						r.read(p.Off, uint64(p.Len))
					}
				}
			})
		}
		wg.Wait()
		if got := r.has(9); got != "" && got != "a" {
			t.Errorf("%d: %s", at, got)
		}
		if x.Put(key(7), []byte("x")) {
			t.Error("something is put where it cannot be")
		}
		y := d.join("a", false)
		d.Leave(x)
		if again := d.join("a", false); again != y || !again.Put(key(7), []byte("x")) {
			t.Error("no shelf in memory in its place")
		}
		d.put(other, 1, 2, 100)
		if got := (&reader{t: t, x: other}).has(9); got != "ab" {
			t.Errorf("the other tenant has %s", got)
		}
		if log := d.log.String(); strings.Count(log, "\n") != 1 {
			t.Error(log)
		}
		if _, err := os.Stat(x.file.f.Name()); err == nil {
			t.Error("the file is still there")
		}
	}
}

// TestParts: files take no more of the disk than there is for them, grow as they are written, and shrink as tenants come.
func TestParts(t *testing.T) {
	const disk = 160 << 20
	d := openDisk(t, func(o *Options) { o.Disk = disk })
	blocks := func() (sum int64) {
		list, err := os.ReadDir(d.o.Dir)
		d.must(err)
		for _, e := range list {
			var st unix.Stat_t
			d.must(unix.Stat(filepath.Join(d.o.Dir, e.Name()), &st))
			sum += st.Blocks * 512
		}
		return sum
	}
	const over = 4 << 20 // heads, records and what the file system needs, of two
	a := d.join("a", true)
	if n := blocks(); n > step+over || n < step {
		t.Errorf("an empty one has %d bytes", n)
	}
	d.put(a, 0, 80, 1<<20)
	if n := blocks(); n > 2*step+over || n < 80<<20 {
		t.Errorf("with 80 MiB it has %d bytes", n)
	}
	d.put(a, 80, 250, 1<<20)
	if n, st := blocks(), a.Stats(); n > disk+over || st.Bytes > disk || st.Bytes < disk*3/4 {
		t.Errorf("%d bytes of the disk, %+v", n, st)
	}
	b := d.join("b", true)
	if n, st := blocks(), a.Stats(); n > disk+over || st.Bytes > disk/2 {
		t.Errorf("%d bytes of the disk, %+v", n, st)
	}
	d.put(b, 0, 250, 1<<20)
	d.put(a, 0, 250, 1<<20)
	if n, st := blocks(), a.Stats(); n > disk+over || st.Bytes < disk/3 || st.Bytes > disk/2 {
		t.Errorf("%d bytes of the disk, %+v", n, st)
	}
	// It is so after a restart, whoever comes first.
	d.again()
	c := d.join("c", true)
	d.put(c, 0, 250, 1<<20)
	if n := blocks(); n > disk+over {
		t.Errorf("%d bytes of the disk", n)
	}
	if got := (&reader{t: t, x: d.join("b", true)}); got.has(250) == "" {
		t.Error("nothing is left")
	}
	// A tenant that does not come back leaves its part to others.
	d.Tick(time.Now().Add(fileIdleMost+time.Hour), false)
	if st := d.Stats(); st.Tenants != 2 {
		t.Errorf("%+v", st)
	}
	d.put(c, 0, 250, 1<<20)
	if n, st := blocks(), c.Stats(); n > disk+over || st.Bytes < disk/3 {
		t.Errorf("%d bytes of the disk, %+v", n, st)
	}
}

// TestManyTenants: the one that was away for longest makes room for a new one, and none that is connected does.
func TestManyTenants(t *testing.T) {
	d := openDisk(t, func(o *Options) { o.Disk, o.Keep = 3*least+least/2, 0 })
	a, b := d.join("a", true), d.join("b", true)
	d.put(b, 0, 1, 100)
	d.Leave(a)
	d.join("c", true)
	if st := d.Stats(); st.Tenants != 3 {
		t.Errorf("%+v", st)
	}
	d.join("d", true)
	if st := d.Stats(); st.Tenants != 3 || d.tenants["a"] != nil {
		t.Errorf("%+v", st)
	}
	d.join("e", false)
	if got := (&reader{t: t, x: b}).has(9); got != "a" {
		t.Error(got)
	}
}

// TestShortOfMemory: what is in files stays.
func TestShortOfMemory(t *testing.T) {
	d := openDisk(t, nil)
	x := d.join("a", true)
	d.put(x, 0, 1, 100)
	d.Tick(time.Now(), true)
	if d.put(x, 1, 2, 100); (&reader{t: t, x: x}).has(9) != "ab" {
		t.Errorf("%+v", d.Stats())
	}
}

// TestSlowDisk: what exceeds the queue is not kept, and counted; nothing waits.
func TestSlowDisk(t *testing.T) {
	d := openDisk(t, nil)
	x := d.join("a", true)
	x.file.mu.Lock() // the writer waits
	some := entry(t, 1, 1<<20)
	for range 40 {
		x.Put(key(1), some)
	}
	if n := x.file.waiting.Load(); n > maxQueued {
		t.Errorf("%d bytes wait", n)
	}
	x.file.mu.Unlock()
	if st := d.Stats(); st.Dropped < 20 {
		t.Errorf("%+v", st)
	}
	d.until(func() bool { return x.file.waiting.Load() == 0 })
	if st := d.Stats(); st.Kept == 0 || st.Kept+st.Dropped != 40 {
		t.Errorf("%+v", st)
	}
}

// TestMarkUntilWritten: a mark is added while the disk makes everybody else wait, and stays until its entry is there. In a
// shelf that is shared, too.
func TestMarkUntilWritten(t *testing.T) {
	d := openDisk(t, nil)
	for name, put := range map[string]func(x *Tenant, n byte) bool{
		"own":    func(x *Tenant, n byte) bool { return x.Put(key(n), entry(t, n, 1000)) },
		"shared": func(x *Tenant, n byte) bool { return x.PutFor("member", key(n), entry(t, n, 1000)) },
	} {
		x := d.join(name, true)
		r := &reader{t: t, x: x}
		look := func() (marked bool) {
			r.refresh()
			r.LearnMarks(r.read(shelf.HeadLen, shelf.MaxMarks*shelf.MarkLen), time.Now())
			_, marked = r.UnderWay(key(1))
			return marked
		}
		x.file.mu.Lock() // the writer waits
		if !put(x, 0) {
			t.Fatal("not put")
		}
		at := x.Begin(key(1), shelf.Mark{Maker: 1})
		x.Runs(at)
		if !look() {
			t.Errorf("%s: no mark while the disk is busy", name)
		}
		if !put(x, 1) {
			t.Fatal("not put")
		}
		x.End(at)
		if !look() || r.has(2) != "" {
			t.Errorf("%s: the mark is gone before its entry is there", name)
		}
		x.file.mu.Unlock()
		d.until(func() bool { return !look() })
		if got := r.has(2); got != "ab" {
			t.Errorf("%s: the mark is gone, %q are there", name, got)
		}
		x.file.hidden.Store(true)
		if put(x, 2) {
			t.Errorf("%s: put while it is not known what is whole", name)
		}
		x.file.hidden.Store(false)
	}
}

// TestFullDisk: without room, a file is not made, and one that is there does not grow: it goes on with what it has.
func TestFullDisk(t *testing.T) {
	const all = 1 << 60
	d := openDisk(t, func(o *Options) { o.Left = all })
	d.join("a", false)
	d.join("b", false)
	if log := d.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "free") {
		t.Error(log)
	}
	if files, _ := filepath.Glob(filepath.Join(d.o.Dir, "*"+suffix)); len(files) > 0 {
		t.Errorf("%v are left", files)
	}
	d.o.Left = 1 << 20
	d.again()
	x := d.join("a", true)
	x.file.left = all
	d.put(x, 0, 100, 1<<20)
	if st := x.stats(); st.Bytes > step || st.Bytes < step*3/4 || d.log.Len() > 0 {
		t.Errorf("%+v\n%s", st, d.log)
	}
	x.file.left = 0
	d.mu.Lock()
	d.divide() // as when a tenant comes or goes
	d.mu.Unlock()
	d.put(x, 0, 100, 1<<20)
	if st := x.stats(); st.Bytes < 90<<20 {
		t.Errorf("%+v", st)
	}
}

// TestDirOfOthers: a directory that others may write to is not used.
func TestDirOfOthers(t *testing.T) {
	d := openDisk(t, nil)
	d.Close()
	d.must(os.Chmod(d.o.Dir, 0o755))
	d.Shelves = New(d.o)
	d.join("a", false)
	if log := d.log.String(); strings.Count(log, "\n") != 1 {
		t.Error(log)
	}
}
