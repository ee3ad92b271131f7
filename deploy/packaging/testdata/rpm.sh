# rpm.sh: installs, upgrades and removes the rpms in $PACKAGES, versions $OLD and $NEW. This machine's database of rpm
# has no packages, so that nothing is known about what they need.
. "$SCRIPTS/roots.sh"

old=/packages/rdistcc-$OLD-1.x86_64.rpm new=/packages/rdistcc-$NEW-1.x86_64.rpm
root host
within host rpm --initdb
within host rpm -i --nodeps $old
daemon host
remote host
within host rpm -V --nodeps rdistcc | grep . && fail "files differ from the package's"
[ -s "$T/host/etc/sysconfig/rdistccd" ] || fail "no /etc/sysconfig/rdistccd"
[ -s "$T/host/usr/share/zsh/site-functions/_rdistcc" ] || fail "no completion for zsh"
echo "daemon: {nice: 3}" >>"$T/host/etc/rdistcc/config.yaml"
within host rpm -U --nodeps $new
told host "--no-block try-restart rdistccd.service rdistcc-cm.service" || fail "the upgrade restarts no service"
told host "--no-reload disable --now rdistccd.service rdistcc-cm.service" && fail "the upgrade stops the services"
grep -q "^daemon: {nice: 3}" "$T/host/etc/rdistcc/config.yaml" || fail "the upgrade has overwritten the settings"
grep -q "a newer default" "$T/host/etc/rdistcc/config.yaml.rpmnew" || fail "the new settings are nowhere"
within host getent passwd rdistcc >/dev/null || fail "no user rdistcc"
remote host
within host rpm -U --nodeps --oldpackage $old
remote host
within host rpm -e rdistcc
told host "--no-reload disable --now rdistccd.service rdistcc-cm.service" || fail "the services run on"
[ -s "$T/host/etc/rdistcc/config.yaml.rpmsave" ] || fail "the settings were removed"
rm -f "$T/host"/etc/rdistcc/config.yaml.rpm* && rmdir "$T/host/etc/rdistcc" 2>/dev/null || true
# The user rdistcc stays, as files of it may.
left=$(files host | grep -v -x -e ./etc/passwd -e ./etc/group -e ./etc/shadow -e ./etc/gshadow -e ./usr/bin/systemctl -e ./etc/.pwd.lock -e ./etc/resolv.conf) || true
[ -z "$left" ] || fail "the package leaves $left"
echo done
