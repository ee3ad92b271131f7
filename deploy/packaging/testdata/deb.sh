# deb.sh: installs, upgrades, downgrades and purges the debs in $PACKAGES, versions $OLD and $NEW.
. "$SCRIPTS/roots.sh"

old=/packages/rdistcc_$OLD-1_amd64.deb new=/packages/rdistcc_$NEW-1_amd64.deb
root host
root build

# From two fresh roots to the first object of a host.
began=$(date +%s%N)
within host dpkg -i $old
daemon host
within build dpkg -i $old
remote build
echo "first remote object $((($(date +%s%N) - began) / 1000000)) ms after the installation began"

# What a user finds.
within host getent passwd rdistcc >/dev/null || fail "no user rdistcc"
[ "$(within host stat -c %a /etc/rdistcc/config.yaml)" = 644 ] || fail "mode of config.yaml"
within host rdistcc config >/dev/null || fail "the installed settings are not read"
for page in rdistcc.1 rdistcc-perf.1 ccache-storage-rdistcc.1 rdistcc-cm.8 rdistccd.8; do
	within host gzip -t /usr/share/man/man${page##*.}/$page.gz || fail "no manual page $page"
done
for f in /usr/share/bash-completion/completions/rdistcc /usr/share/zsh/vendor-completions/_rdistcc \
	/usr/share/fish/vendor_completions.d/rdistcc.fish /usr/lib/systemd/system/rdistccd.service /usr/lib/systemd/user/rdistcc-cm.socket \
	/usr/share/rdistcc/grafana/rdistcc.json /usr/share/doc/rdistcc/copyright; do
	[ -s "$T/host$f" ] || fail "no $f"
done
within host dpkg -V rdistcc | grep . && fail "files differ from the package's"

# An upgrade keeps settings that were changed, and brings new defaults where none were.
echo "daemon: {nice: 3}" >>"$T/host/etc/rdistcc/config.yaml"
within host dpkg --force-confold -i $new
grep -q "^daemon: {nice: 3}" "$T/host/etc/rdistcc/config.yaml" || fail "the upgrade has overwritten the settings"
grep -q "a newer default" "$T/host/etc/rdistcc/config.yaml.dpkg-dist" || fail "the new settings are nowhere"
within host rdistcc config | grep -q "nice.*3" || fail "the settings are not in force"
within build dpkg -i $new
told build "--no-block try-restart rdistccd.service rdistcc-cm.service" || fail "the upgrade restarts no service"
told build "--no-reload disable --now rdistccd.service rdistcc-cm.service" && fail "the upgrade stops the services"
grep -q "a newer default" "$T/build/etc/rdistcc/config.yaml" || fail "the new settings were not installed"
# Daemon and manager of the old version still run.
remote build

# An upgrade that was interrupted half-way is completed.
within build dpkg -i $old
within build dpkg --unpack $new
remote build
within build dpkg --configure -a
[ "$(within build dpkg-query -W -f '${Status} ${Version}' rdistcc)" = "install ok installed $NEW-1" ] || fail "not upgraded"

# A downgrade works.
within host dpkg --force-confold -i $old
remote build

# Removed, it leaves the settings; purged, nothing.
within host dpkg -r rdistcc
told host "--no-reload disable --now rdistccd.service rdistcc-cm.service" || fail "the services run on"
[ -s "$T/host/etc/rdistcc/config.yaml" ] || fail "the settings were removed"
within host dpkg -P rdistcc
# The user rdistcc stays, as files of it may.
left=$(files host | grep -v -x -e ./etc/passwd -e ./etc/group -e ./etc/shadow -e ./etc/gshadow -e ./usr/bin/systemctl -e ./etc/.pwd.lock -e ./etc/resolv.conf) || true
[ -z "$left" ] || fail "the package leaves $left"
[ ! -e "$T/host/var/cache/rdistccd" ] || fail "the package leaves the daemon's cache"
echo done
