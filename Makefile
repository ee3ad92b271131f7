# `make` builds the programs into bin/. `make demo` shows them at work on real code, `make test` tests them:
# both need Go, gcc, g++ and make only. Every other target names what it lacks; `make deps` installs that on Debian.

GO          ?= go
PREFIX      ?= /usr/local
DESTDIR     ?=
FUZZTIME    ?= 20s
GOLANGCI    ?= github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
NFPM        ?= github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
VERSITYGW   ?= github.com/versity/versitygw/cmd/versitygw@v1.8.0
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

# Programs are made and run among temporary files. Where none may be run in /tmp, as in some containers, those go elsewhere.
elsewhere := $(shell for d in "$${TMPDIR:-/tmp}" /var/tmp; do ok=; f=$$(mktemp "$$d/make.XXXXXX") && chmod 700 "$$f" && sh -c '"$$0"' "$$f" && ok=1; rm -f "$$f"; \
	[ ! "$$ok" ] || { [ "$$d" = "$${TMPDIR:-/tmp}" ] || echo "$$d"; break; }; done 2>/dev/null)
ifneq ($(elsewhere),)
$(info make: no program can be run in $(or $(TMPDIR),/tmp): temporary files go to $(elsewhere))
export TMPDIR := $(elsewhere)
endif

PROGRAMS := $(notdir $(patsubst %/,%,$(wildcard cmd/*/ lab/rdistcc-perf/)))

.PHONY: all test test-all check lines bare currency race fuzz lint bench scale demo e2e builds random options sequences honest sim exp interop ccache-suite modules netns nemesis attacks wireattacks ibverbs charts manifests install install-docs uninstall package site clean deps $(PROGRAMS)

all:
	$(call need,$(GO))
	$(call build,$(PROGRAMS))

$(PROGRAMS):
	$(call need,$(GO))
	$(call build,$@)

# build PROGRAMS: all by one go command, so that it compiles what they share once and the links run side by side. Static
# (no cgo): the wrapper starts once per source file, and the dynamic linker alone costs it 0.5 ms. Programs that mostly
# wait begin in internal/entrypoint, which makes the Go runtime cheaper.
build = @mkdir -p bin; ln -sfn rdistcc bin/rdistcc-dtlto; ln -sfn rdistcc-cm bin/ccache-storage-rdistcc; echo "make: builds $(1) into bin/$(if $(wildcard bin/rdistcc),,; the first time that takes one to two minutes on two cores)"; \
	CGO_ENABLED=0 $(GO) build -trimpath $(foreach p,$(1),-ldflags '$(main)/$(p)=$(strip -s -w -X main.version=$(VERSION) $(link_$(p)))') -o bin/ $(wildcard $(1:%=./cmd/%) $(1:%=./lab/%)) $(slowly)
main = github.com/rdistcc/rdistcc/...
entry = $(if $(filter amd64 arm64,$(shell $(GO) env GOARCH)),-E github.com/rdistcc/rdistcc/$(1))
link_rdistcc    = $(call entry,pkg/connmgr/quick.start)
link_rdistcc-cm = $(call entry,internal/entrypoint.long)
link_rdistccd   = $(call entry,internal/entrypoint.long)

# slowly, after a command: says every nine seconds that it is not done yet. The loop looks for the command itself, as a shell
# that was only just started may miss a signal; the trap comes after it, or the loop would have it too.
slowly = & p=$$!; (n=0; while sleep 9 >/dev/null 2>&1; kill -0 $$p 2>/dev/null; do n=$$((n+9)); echo "make:   $$n s"; done) & q=$$!; \
	trap "kill $$p $$q 2>/dev/null; exit 1" HUP INT TERM; wait $$p; s=$$?; kill $$q 2>/dev/null; exit $$s

# The daemon with the provider ibverbs, for an RDMA adapter or the kernel's siw: with cgo, so not static.
ibverbs:
	$(call need,$(GO) gcc)
	@$(have_rdma) || { echo "make $@: the headers of libibverbs and librdmacm are missing (on Debian: make deps)" >&2; exit 1; }
	@mkdir -p bin
	CGO_ENABLED=1 $(GO) build -trimpath -tags ibverbs -ldflags '-s -w -X main.version=$(VERSION)' -o bin/rdistccd-ibverbs ./cmd/rdistccd

have_rdma := printf '\043include <infiniband/verbs.h>\n\043include <rdma/rdma_cma.h>\n' | gcc -E -o /dev/null - 2>/dev/null

# need NAMES: ends with one line when a program is missing, or a Go that cannot read go.mod. From 1.21 on, the go command
# fetches the version that go.mod asks for by itself.
wanted := $(shell sed -n 's/^go //p' go.mod)
need = @for t in $(1); do command -v $$t >/dev/null || case $$t in \
	$(GO)) echo "make $@: Go is missing: install Go $(wanted), or any from 1.21 on, which fetches that one by itself (https://go.dev/doc/install)" >&2; exit 1;; \
	*) echo "make $@: $$t is missing (on Debian: make deps)" >&2; exit 1;; esac; done; \
	case " $(1) " in *" $(GO) "*) v=$$(GOTOOLCHAIN=local $(GO) version) || exit 1; case "$$v" in *" go1."[0-9][.\ ]*|*" go1.1"[0-9][.\ ]*|*" go1.20"[.\ ]*) \
	echo "make $@: $${v% *} is too old: install Go $(wanted), or any from 1.21 on, which fetches that one by itself (https://go.dev/doc/install; on Debian 12: golang-go of bookworm-backports)" >&2; exit 1;; esac;; esac
# skips: says beforehand which programs are missing, without which tests are skipped. The tests name them again.
skips = @none=; for t in clang gcc-11 aarch64-linux-gnu-gcc ccache cmake meson ninja automake libtoolize dpkg-buildpackage distcc tshark prometheus redis-server versitygw mkdocs; do \
	command -v $$t >/dev/null || [ -x "$$($(GO) env GOPATH)/bin/$$t" ] || none="$$none $$t"; done; \
	[ -z "$$none" ] || echo "make $@: tests are skipped that need what is not installed (on Debian: make deps):$$none"

# What a change is tested with: of large tests, of the laboratory and of packages that do the same on every machine, one in 32,
# another one each day (RDISTCC_TEST_PART).
test: parts = -packages part -part $(PART) -hint 'all of it: make test-all'
test:
	$(tested)
# Everything, each case in all its ways.
test-all:
	$(tested)

PART   ?= 32
define tested
	$(call need,$(GO) gcc g++)
	$(skips)
	@if $(have_rdma); then CGO_ENABLED=1 $(GO) vet -tags ibverbs ./pkg/iwarp/ibverbs; \
	else echo "make $@: libibverbs-dev or librdmacm-dev is missing: the provider ibverbs is not looked at (on Debian: make deps)"; fi
	@$(shared) && $(call tests,$(gotest) -timeout 60m) $(parts) $(TESTFLAGS) ./...
endef

# tests FLAGS: builds the program that runs the tests and shows how far they are, in the directory that shared has made, and
# begins its command line. FLAGS are those of go test.
tests = $(goenv) $(GO) build -o "$$dir/tests" ./internal/test/program/tests && $(goenv) "$$dir/tests" -budget testdata/budget -first pkg/connmgr,internal/ctl,internal/toolchain,pkg/worker/cluster -flags '$(1)'

# shared makes a directory in which the tests of all packages keep what one of them finds out for all: the built programs, and
# what a daemon knows of the compilers here (internal/test/kit/farmtest). Identifying them all takes seconds of CPU.
shared = dir=$$(mktemp -d) && chmod 755 "$$dir" && trap 'rm -rf "$$dir"' EXIT && trap 'exit 1' HUP INT TERM && export RDISTCC_TEST_SHARED="$$dir"

# goenv has tests compiled as the programs are, so that each package is compiled once for both, and for any directory.
goenv  := CGO_ENABLED=0 GOFLAGS='$(strip $(shell $(GO) env GOFLAGS 2>/dev/null) -trimpath)'

# Four packages at a time, as they wait more than they compute. `make lint` vets.
gotest = -p 4 -vet=off -ldflags=-w

# A quick look, in a minute: the tests' -short of the packages that most depends on, an eighth of what takes turns, and all of the
# packages that are changed and not committed.
core    = . ./cmd/... ./lab/rdistcc-perf ./pkg/compile ./pkg/connmgr ./pkg/connmgr/link ./pkg/iwarp ./pkg/iwarp/rdmap ./pkg/scheduler ./pkg/worker ./pkg/worker/policy ./pkg/resultcache ./internal/inputs ./internal/job ./internal/sources ./internal/unit
changed = $(filter-out ./deploy/helm/%,$(wildcard $(sort $(patsubst %/,./%,$(dir $(shell git diff --name-only HEAD -- '*/*.go' 2>/dev/null))))))
short   = $(call tests,$(gotest) -short)
check:
	$(call need,$(GO) gcc g++)
	@$(shared) && $(if $(changed),$(short) $(changed) &&) $(short) -part 8 $(filter-out $(changed),$(core))

# How many lines of Go there are, without tests but for the last row. What the three programs link is asked of the go command.
lines:
	$(call need,$(GO) git)
	@line() { printf '%9s  %s\n' "$$(xargs cat | wc -l)" "$$1"; }; \
	$(GO) list -deps -f '{{if and .Module .Module.Main}}{{range .GoFiles}}{{$$.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}' ./cmd/... | line 'linked by rdistcc, rdistcc-cm and rdistccd'; \
	git ls-files 'cmd/*.go' 'pkg/*.go' 'internal/*.go' | grep -v -e _test.go -e ^internal/test/ | line 'product: cmd, pkg, internal (with what only a build tag links)'; \
	git ls-files 'lab/*.go' | grep -v _test.go | line 'laboratory: lab'; \
	git ls-files 'internal/test/*.go' 'deploy/*.go' | grep -v _test.go | line 'what tests are made of: internal/test, deploy'; \
	git ls-files '*_test.go' | line tests

# `make demo` and `make test` on the committed files in a Debian of their own with gcc, g++, make and Go alone, as an ordinary user.
# Root. BARE=DIR keeps that Debian for the next time; BAREFLAGS: say '-root', or 'go test ./internal/test/suite/equal' instead.
bare:
	$(call need,$(GO) git)
	@.ci/bare $(BAREFLAGS)

# The corpus by one gcc and one clang of a Debian suite, and a table of what ran where. Root. CURRENCY=DIR keeps that Debian for the next time.
currency:
	$(call need,$(GO) unshare)
	@.ci/currency $(or $(SUITE),unstable) $(or $(GCC),16) $(or $(CLANG),22) $(CURRENCYFLAGS)

# RACEPART=N: of large suites and such packages, one part of N; SHUFFLE=SEED: tests in another order.
race: goenv = CGO_ENABLED=1
race:
	$(call need,$(GO) gcc g++)
	$(skips)
	@$(shared) && $(call tests,-race -timeout 60m $(if $(SHUFFLE),-shuffle $(SHUFFLE))) $(if $(RACEPART),-part $(RACEPART)) ./...

fuzz:
	$(call need,$(GO))
	@set -e; for dir in $$($(GO) list -f '{{.Dir}}' ./...); do \
		for f in $$(cat $$dir/*_test.go 2>/dev/null | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p'); do \
			echo "$$f ($${dir#$(CURDIR)/})"; \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 2s $$dir; \
		done; done

lint:
	$(call need,$(GO) gofmt git)
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$bad" ] || { echo "not gofmt'ed: $$bad" >&2; exit 1; }
	@if bin=$$(command -v golangci-lint || ls "$$($(GO) env GOPATH)/bin/golangci-lint" 2>/dev/null); then \
		echo "$$bin run"; $(goenv) $$bin run ./...; \
	else echo "make lint: golangci-lint is missing (make deps): go vet alone"; $(goenv) $(GO) vet ./...; fi

bench: all
	$(call need,$(GO) gcc)
	$(GO) run ./internal/test/program/bench $(BENCHFLAGS)

# HEADERS=50000 SCALEFLAGS="-rounds 100" for more.
HEADERS ?= 20000
scale: all
	$(call need,$(GO) gcc)
	$(GO) run ./internal/test/program/bench -only P21 -headers $(HEADERS) $(SCALEFLAGS)

# KEEP=1 leaves daemons and manager running and says where their status pages and metrics are.
# DEMO=all compiles every source of its code bases, which takes some five minutes.
demo:
	$(call need,$(GO) gcc g++)
	$(call build,rdistcc rdistcc-cm rdistccd)
	@$(goenv) $(GO) run ./internal/test/program/demo $(if $(KEEP),-keep) $(if $(DEMO),-whole) $(DEMOFLAGS)

e2e: all
	$(call need,$(GO) gcc g++)
	$(skips)
	$(GO) test -count=1 -v -run '^(TestScripts|TestBuildSystems)$$' . && $(GO) test -count=1 ./internal/test/suite/faults

# Real projects of Debian's, and the kernel, built plain and with rdistcc; every object is compared, and each project's own
# tests run. BUILDS: lua,zlib,curl,pcre2,redis,jsoncpp,tinyxml2,leveldb,snappy,yaml-cpp,linux; BUILDFLAGS: say -options 'gcc:-O2 -g';
# -bare: on hosts that have no compilers.
builds:
	$(call need,$(GO) gcc g++ cmake ninja)
	$(GO) test -count=1 -v -timeout 10h -run '^TestBuilds$$' ./internal/test/suite/equal -builds $(or $(BUILDS),all) $(BUILDFLAGS)

# ccache's own test suite, from Debian's source package, plain and with the compiler behind rdistcc; it says how many of its cases pass.
# CCACHEFLAGS: say -cc clang; -suites 'base direct'.
ccache-suite:
	$(call need,$(GO) gcc ccache)
	$(GO) test -count=1 -v -timeout 3h -run '^TestSuite$$' ./internal/test/suite/ccache -ccache $(CCACHEFLAGS)

# A project with C++ modules, built by a CMake that can do so, on a host without compilers. ROOT: a directory with a system that has
# CMake 3.28, Ninja, and gcc 14 or clang 19. On Debian:
# mmdebstrap --variant=minbase --include=cmake,ninja-build,g++,clang-19,clang-tools-19,libc++-19-dev trixie DIR
modules:
	$(call need,$(GO) unshare chroot)
	internal/test/suite/toolchains/in-root.sh $(or $(ROOT),/) $(GO) test -count=1 -v -timeout 20m -run '^(TestModulesProject|TestImportStd)$$' ./internal/test/suite/toolchains $(MODULESFLAGS)

# The scheduler beside simple rules and an oracle, in simulated time: rewrites tables and plots of docs/scheduling.md.
sim:
	$(call need,$(GO))
	$(GO) run ./internal/test/program/simfarm/report -scale $(or $(SCALE),large) -seeds $(or $(SEEDS),3) -doc docs/scheduling.md $(SIMFLAGS)

# What the papers compared, on this machine: rewrites the generated parts of lab/experiments.md, and keeps raw samples.
exp: all
	$(call need,$(GO) gcc)
	bin/rdistcc-perf exp all --size $(or $(EXPSIZE),ci) --out bin/exp --doc lab/experiments.md $(EXPFLAGS)

# Random command lines, plain and with rdistcc: RUNS of them from SEED on. And TREES random trees of files, compiled after
# each of the changes that happen to them. RANDOMFLAGS: of the test, say -inputs list.
random:
	$(call need,$(GO) gcc g++)
	$(GO) test -count=1 -v -timeout 10h -run '^TestRandom(Trees)?$$' ./internal/test/suite/equal -random $(or $(RUNS),5000) -trees $(or $(TREES),1000) -seed $(or $(SEED),1) $(RANDOMFLAGS)

# Each option that compilers complete, on a host and here: what a compile with it leaves and says. EVERY: compilers.
options:
	$(call need,$(GO) gcc g++)
	$(GO) test -count=1 -v -timeout 10h -run '^TestOptions$$' ./internal/test/suite/equal -every "$(or $(EVERY),gcc clang)"

# All that is known to happen to files between compiles, with every kind of compile. SEQUENCES: names with commas between.
sequences:
	$(call need,$(GO) gcc g++)
	$(GO) test -count=1 -v -timeout 10h -run '^TestSequences$$' ./internal/test/suite/equal -sequences $(or $(SEQUENCES),all) $(RANDOMFLAGS)

# What real builds ask for, all of it, plain and with rdistcc: no list may be refused, or stay here without need.
# HONEST: names of Debian packages, with commas between. New lists: go run ./internal/test/program/harvest -out internal/test/kit/honest/packages.txt.
honest:
	$(call need,$(GO) gcc g++)
	$(GO) test -count=1 -v -timeout 3h -run '^TestHonest$$' ./internal/test/suite/equal -honest $(or $(HONEST),all)

# A farm of real processes that is struck with faults while it compiles: JOBS compiles for each of SEEDS seeds from
# SEED on. NEMESISFLAGS: say -plan, or -only 'link reset'. As root, full disks are among the faults.
nemesis: all
	$(call need,$(GO) gcc g++)
	nice $(GO) run ./internal/test/program/nemesis -jobs $(or $(JOBS),2000) -seeds $(or $(SEEDS),5) -seed $(or $(SEED),1) -svg bin/nemesis.svg $(NEMESISFLAGS)

# Attacks on the wire at full size (docs/faults.md): in process, and over loopback with real daemons.
wireattacks:
	$(call need,$(GO) gcc)
	RDISTCC_GUESSES=$(or $(GUESSES),100000000) $(GO) test -count=1 -v -timeout 1h -run 'TestMillionGuesses|TestStaleSTag' ./pkg/iwarp
	RDISTCC_WIREATTACKS=full $(GO) test -count=1 -v -timeout 1h ./internal/test/suite/wireattacks

# Hostile jobs on real daemons, all of them, in every way in which one can be run: half an hour. Root, for all ways but one.
# ATTACKS: of the test, say -mode user, -only exec, -by clang, -tell; or -run TestLadder -ladder 1. Which compilers: RDISTCC_ATTACKS_GCC, _GXX, _CLANG, _CLANGXX.
attacks:
	$(call need,$(GO) gcc g++)
	$(GO) test -count=1 -v -timeout 3h ./internal/test/suite/attacks -full $(ATTACKS)

# Against the kernel's soft-iWARP driver and rdma-core's programs, in a QEMU guest (interop/siw-vm). INTEROP=ci: the
# small sizes; INTEROPFLAGS: of the compiled test, say -test.run TestRping -test.v.
interop: all
	$(call need,$(GO))
	@$(goenv) $(GO) test -c -o bin/interop.test ./interop
	@cd interop && RDISTCC_INTEROP=$(or $(INTEROP),full) ../bin/interop.test -test.timeout 40m $(INTEROPFLAGS)

# Farms of many hosts on this machine, each in a network namespace, behind a switch that delays, loses and cuts; a compiler
# that only takes as long as it is told. Root. NETNS=ci: the small sizes; NETNSFLAGS: of go test, say -run TestHerd;
# PLOTS=DIR: pictures of how busy the farms were.
netns:
	$(call need,$(GO) gcc make)
	@RDISTCC_NETNS=$(or $(NETNS),full) RDISTCC_PLOTS=$(abspath $(PLOTS)) $(goenv) $(GO) test -count=1 -v -p 1 -parallel 4 -timeout 30m ./lab/netlab ./internal/test/suite/network $(NETNSFLAGS)

# The Helm chart and the plain manifests, held against Helm's library and Kubernetes' types: in a module of its own, so that nobody
# else downloads them. Its first build takes four minutes of CPU.
charts:
	$(call need,$(GO))
	cd deploy/helm/check && export $(goenv) && $(GO) vet . && $(GO) test -count=1 -timeout 10m .

# deploy/kubernetes, as the chart makes it.
manifests:
	$(call need,$(GO))
	cd deploy/helm/check && $(GO) test -count=1 -timeout 10m -run '^TestPlainManifests$$' . -update

# Not built again under sudo, where Go and its cache may be missing, if `make` has built it.
built = $(if $(SUDO_USER)$(if $(shell command -v $(GO)),,none),$(if $(filter-out $(wildcard bin/*),$(PROGRAMS:%=bin/%)),,yes))
install: $(if $(built),,all) install-docs
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/rdistcc share/rdistcc/prometheus/targets share/rdistcc/grafana share/rdistcc/ci \
		share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d lib/sysusers.d)
	install -m 0755 $(addprefix bin/,$(PROGRAMS)) $(DESTDIR)$(PREFIX)/bin
	ln -sfn rdistcc $(DESTDIR)$(PREFIX)/bin/rdistcc-dtlto
	ln -sfn rdistcc-cm $(DESTDIR)$(PREFIX)/bin/ccache-storage-rdistcc
	-$(DESTDIR)$(PREFIX)/bin/rdistcc install-links $(DESTDIR)$(PREFIX)/lib/rdistcc >/dev/null # for compilers that are there
	install -m 0644 deploy/prometheus/*.yml $(DESTDIR)$(PREFIX)/share/rdistcc/prometheus
	install -m 0644 deploy/prometheus/targets/*.yml $(DESTDIR)$(PREFIX)/share/rdistcc/prometheus/targets
	install -m 0644 deploy/grafana/*.json $(DESTDIR)$(PREFIX)/share/rdistcc/grafana
	install -m 0644 deploy/ci/*.yml $(DESTDIR)$(PREFIX)/share/rdistcc/ci
	bin/rdistcc completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/rdistcc
	bin/rdistcc completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_rdistcc
	bin/rdistcc completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/rdistcc.fish
	install -m 0644 deploy/packaging/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/rdistcc.conf

# Removes what install would put there, and directories of ours that are empty then.
uninstall:
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && $(MAKE) --no-print-directory -s install DESTDIR="$$tmp" PREFIX=$(PREFIX) >/dev/null && \
	cd "$$tmp" && find . ! -type d | while read -r f; do rm -f "$(DESTDIR)/$$f"; done && \
	find .$(PREFIX) -depth -mindepth 2 -type d -path '*rdistcc*' | while read -r d; do rmdir "$(DESTDIR)/$$d" 2>/dev/null || :; done
	@echo "removed from $(DESTDIR)$(PREFIX): programs, links, units, manual pages, documents"

# What is read: units, manual pages, and documents in the order that their links expect.
install-docs: doc := $(DESTDIR)$(PREFIX)/share/doc/rdistcc
install-docs:
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,lib/systemd/system lib/systemd/user share/man/man1 share/man/man8) $(doc)/docs/img $(doc)/lab/img $(doc)/deploy
	for u in $(patsubst deploy/systemd/%,%,$(wildcard deploy/systemd/*/*)); do \
		sed 's,@PREFIX@,$(PREFIX),g' deploy/systemd/$$u > $(DESTDIR)$(PREFIX)/lib/systemd/$$u; done
	install -m 0644 man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 0644 man/*.8 $(DESTDIR)$(PREFIX)/share/man/man8
	install -m 0644 README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SECURITY.md $(doc)
	install -m 0644 docs/*.md $(doc)/docs
	install -m 0644 docs/img/*.svg docs/img/*.png docs/img/*.txt $(doc)/docs/img
	install -m 0644 lab/*.md $(doc)/lab
	install -m 0644 lab/img/*.svg $(doc)/lab/img
	install -m 0644 deploy/config.yaml $(doc)/deploy
	for d in helm/rdistcc helm/rdistcc/templates kubernetes compose slurm; do \
		install -d $(doc)/deploy/$$d && find deploy/$$d -maxdepth 1 -type f -exec install -m 0644 {} $(doc)/deploy/$$d ';'; done

# A deb, an rpm, a tarball and an OCI image in dist/. Builds of the same commit are equal byte for byte.
package: all
	$(call need,$(GO) git gzip tar)
	@GO='$(GO)' NFPM='$(NFPM)' deploy/packaging/build '$(VERSION)'

# The documents as a site, in dist/site: mkdocs.yml has their order. Whatever would make a page worse than its document, such as
# a link that leads nowhere, is an error. Nothing in the site is fetched from elsewhere.
SITE = dist/site
site:
	$(call need,mkdocs)
	@rm -rf $(SITE) $(SITE).src
	@mkdir -p $(SITE).src/docs $(SITE).src/lab $(SITE).src/deploy
	@cp README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/site/site.css $(SITE).src
	@cp -r docs/*.md docs/img $(SITE).src/docs
	@cp -r lab/*.md lab/img $(SITE).src/lab
	@cp deploy/config.yaml $(SITE).src/deploy
	@{ printf '# Settings\n\n`deploy/config.yaml` has every setting with its default. [Changing the configuration](usage.md#changing-the-configuration) says\n'; \
		printf 'where it goes.\n\n```yaml\n'; cat deploy/config.yaml; printf '```\n'; } > $(SITE).src/docs/settings.md
	RDISTCC_SITE=$(abspath $(SITE)) RDISTCC_SITE_SRC=$(abspath $(SITE)).src mkdocs -q build --strict
	@{ printf 'const rdistccSearchIndex = '; cat $(SITE)/search/search_index.json; echo; cat docs/site/from-files.js; } > $(SITE)/search/from-files.js
	@rm -rf $(SITE).src

clean:
	rm -rf bin dist

# What the tests and targets beyond `make test` and `make demo` can use. Go itself (see go.mod) is not in Debian 12.
compilers := gcc g++ clang gcc-11 g++-11 clang-13 clang-14 clang-15 clang-16 clang-19 clang-tidy-14 gobjc gcc-aarch64-linux-gnu g++-aarch64-linux-gnu musl
builders  := make ccache cmake meson ninja-build autoconf automake libtool pkg-config dpkg-dev tcl bc flex bison libelf-dev
packages   = $(compilers) musl-tools gcc-avr avr-libc g++-mingw-w64-x86-64-win32 $(builders) gcc-12-plugin-dev llvm systemd git ca-certificates chromium distcc iproute2 patchelf strace tshark prometheus redis-server groff-base lintian shellcheck rpm mkdocs-material libboost-dev libibverbs-dev librdmacm-dev libfabric-dev ucx-utils $$(interop/siw-vm/siw-vm deps)
deps:
	@command -v apt-get >/dev/null || { echo "make deps: knows Debian's apt-get only; it would install $(packages)" >&2; exit 1; }
	$(call need,$(GO))
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends --no-upgrade $(packages)
	$(goenv) $(GO) install $(GOLANGCI)
	$(goenv) $(GO) install $(NFPM)
	$(goenv) $(GO) install $(VERSITYGW)
