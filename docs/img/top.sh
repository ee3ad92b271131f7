#!/bin/sh
# top.sh [WxH...]: makes docs/img/top-WxH.txt, pictures of `rdistcc top` in a terminal of that size, by tmux.
#
# Three daemons and a manager of their own run on this machine, with the programs of `make` and a compiler that only takes
# its time (internal/test/kit/standin), so that a build of 24 commands at a time needs no large machine. Needs gcc, make and tmux.
set -eu
cd "$(dirname "$0")/../.."
top=$PWD
dir=$(mktemp -d "${TMPDIR:-/tmp}/rdistcc-top-XXXXXX")
export RDISTCC_DIR="$dir/state" RDISTCC_CONFIG="$dir/config.yaml" RDISTCC_CACHE=off LC_ALL=C.UTF-8 XDG_CACHE_HOME="$dir" XDG_STATE_HOME="$dir"
unset RDISTCC_HOSTS DISTCC_HOSTS NO_COLOR TMUX || true
mkdir -m 700 "$RDISTCC_DIR"
mkdir "$dir/cc" "$dir/src"
pids=
tmux="tmux -u -L rdistcc-top-$$ -f /dev/null"
end() {
	$tmux kill-server 2>/dev/null || true
	for p in $pids; do kill "$p" 2>/dev/null || true; done
	wait
	rm -rf "$dir"
}
trap end EXIT
trap 'exit 1' INT TERM

gcc -O2 -static -s -o "$dir/cc/gcc" internal/test/kit/standin/src/gcc.c
echo "toolchains: {dirs: [$dir/cc]}" >"$dir/daemon.yaml"
echo "local: {share: false}" >"$RDISTCC_CONFIG"
hosts=
for n in 1 2 3; do
	RDISTCC_CONFIG="$dir/daemon.yaml" "$top/bin/rdistccd" --listen "127.0.0.$((n + 1)):7632" --http "127.0.0.$((n + 1)):0" --jobs $((4 * n)) 2>"$dir/daemon-$n.log" &
	pids="$pids $!"
	hosts="$hosts 127.0.0.$((n + 1)):7632"
done
"$top/bin/rdistcc-cm" --hosts "$hosts" 2>"$dir/cm.log" &
pids="$pids $!"

cd "$dir/src"
for n in $(seq 0 6); do mkdir -p "drivers/net/part$n"; done
for n in $(seq 2000); do
	echo "/* stand-in: sleep $((300 + n * 37 % 1500)) output $((20000 + n * 811 % 90000)) */" >"drivers/net/part$((n % 7))/queue_$n.c"
done
echo 'all: $(patsubst %.c,%.o,$(wildcard drivers/net/*/*.c)); $(CC) -o prog $^
%.o: %.c; $(CC) -c $< -o $@' >Makefile
until "$top/bin/rdistcc" status >/dev/null 2>&1; do sleep 0.1; done
# Reasons to run here.
: >conftest.c
for words in "-E -o /dev/null drivers/net/part0/queue_7.c" "-c conftest.c" "-M drivers/net/part0/queue_7.c" "-E -o /dev/null drivers/net/part1/queue_1.c"; do
	"$top/bin/rdistcc" "$dir/cc/gcc" $words >/dev/null 2>&1 || true
done
make -s -j24 CC="$top/bin/rdistcc $dir/cc/gcc" >"$dir/make.log" 2>&1 &
pids="$pids $!"

for size in ${*:-80x24 140x40 20x10}; do
	$tmux new-session -d -s "$size" -x "${size%x*}" -y "${size#*x}" "$top/bin/rdistcc top"
done
sleep 66 # so that there is a minute to show
for size in ${*:-80x24 140x40 20x10}; do
	out="$top/docs/img/top-$size.txt"
	: >"$out"
	for keys in '' 2 3; do
		[ -z "$keys" ] || $tmux send-keys -t "$size" "$keys"
		sleep 1.5
		$tmux capture-pane -p -t "$size" >>"$out"
		echo >>"$out"
	done
done
