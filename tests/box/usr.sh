#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086
# USR: several users on one machine: what they can't see, take or break of each other
# modes: root
# seconds: 100
. "${TEST_LIB:?}/box.bash"
printf 'pool_size = 0\ngrants = ann\n' >"$CUBBY_CONFIG"
need_template tiny
# ann and bob at the system's daemon (ours, by its run directory), and at their own.
sys() {
	local who=$1
	shift
	as "$who" env CUBBY_RUN_DIR="$CUBBY_RUN_DIR" cubby "$@"
}
own() {
	local who=$1
	shift
	as "$who" cubby "$@"
}
as_probe() {
	local who=$1
	shift
	as "$who" probe "$@"
}

t "USR-02: who isn't admitted is refused for each request, by who they are now"
want_status 0 cubby new roots --template tiny
want_status 0 sys ann ls -q
want_err 1 'user 20002 may not use.*adduser' sys bob ls -q
want_err 125 'user 20002 may not' sys bob exec roots -- true
want_err 1 'user 20002 may not' sys bob new x --template tiny

t "USR-02, USR-10: a grant that was taken back holds for connections that are open, too"
printf 'pool_size = 0\n' >"$CUBBY_CONFIG"
want_status 0 daemon_stop
want_status 0 cubby ls -q
want_err 1 'user 20001 may not use' sys ann ls -q
printf 'pool_size = 0\ngrants = ann, bob\n' >"$CUBBY_CONFIG"
want_status 0 daemon_stop
want_status 0 cubby ls -q
want_status 0 sys ann ls -q

t "USR-05: two users, the same name, two boxes; neither sees the other's"
want_status 0 sys ann new mine --template tiny
want_status 0 sys bob new mine --template tiny
want_status 0 sys ann exec mine -- sh -c 'echo ann >$HOME/who'
want_status 0 sys bob exec mine -- sh -c 'echo bob >$HOME/who'
want_out '^ann$' sys ann exec mine -- sh -c 'cat $HOME/who'
want_out '^bob$' sys bob exec mine -- sh -c 'cat $HOME/who'
want_err 125 "no box 'roots'" sys ann exec roots -- true
want_err 1 "no box 'roots'" sys ann rm --force roots
for verb in stop start pause resume info; do want_err 1 "no box 'roots'" sys ann $verb roots; done
want_err 1 "no box 'roots'" sys ann rename roots taken
want_not_out 'roots|bob' sys ann ls
id=$(field roots .id)
want_err 125 "no box '$id'" sys ann exec "$id" -- true
want_out 'mine.*mine|mine' sys ann ls
want_status 0 cubby exec roots -- true

t "USR-05: --all is root's alone, and root is asked which of two is meant"
call sys ann ls --all --json
want "$(jq -r '.[].name' <"$_out" | sort | tr '\n' ' ')" = 'mine '
want "$(cubby ls --all --json </dev/null | jq -r '.[].name' | sort | tr '\n' ' ')" = 'mine mine roots '
want_err 1 "several users have a box 'mine'.*id" cubby rm --force --all mine
want_status 0 sys ann exec mine -- true
want_status 0 sys bob exec mine -- true

t "USR-01: state, sockets and boxes of others can't be read"
allowed host_probe open-read "$CUBBY_STATE_DIR/cubby.db"
blocked as_probe ann open-read "$CUBBY_STATE_DIR/cubby.db"
blocked as_probe ann list "$CUBBY_STATE_DIR"
blocked as_probe ann list "$CUBBY_STATE_DIR/boxes"
blocked as_probe ann list "$CUBBY_RUN_DIR/boxes"
want_status 1 as ann test -e "$CUBBY_RUN_DIR/boxes/$id/init.sock"
want_status 0 test -S "$CUBBY_RUN_DIR/boxes/$id/init.sock"
want "$(stat -c %a "$CUBBY_STATE_DIR")" = 700
want "$(stat -c %a "$CUBBY_STATE_DIR/cubby.db")" = 600
pid=$(field roots .pid)
blocked as_probe ann ptrace "$pid"
blocked as_probe ann kill "$pid"
allowed probe kill "$pid"
blocked as_probe ann open-read "/proc/$(daemon_pids | head -n 1)/environ"

t "USR-01: the log shows each their own"
call sys ann logs --json
want "$(jq -r '.[].box' <"$_out" | sort -u | tr '\n' ' ')" = 'mine '
want "$(cubby logs --all --json </dev/null | jq -r '.[]|select(.event=="created")|.box' | sort | tr '\n' ' ')" = 'mine mine roots '

t "USR-02: templates and the daemon itself are root's"
want_err 1 'made and removed by root' sys ann template create other "dir:$TINY"
want_err 1 'made and removed by root' sys ann template rm --force tiny
want_err 1 'only root' sys ann config --stop-daemon
want_status 0 cubby exec roots -- true

t "a view shows what its owner may see, also when the box starts later"
mkdir -m 700 "$LAB/work/secret"
echo hidden >"$LAB/work/secret/file"
want_status 1 sys ann new peek --template tiny --mount "$LAB/work/secret/file:/f"
mkdir "$LAB/home-ann/proj"
echo hello >"$LAB/home-ann/proj/f"
chown -R 20001:20001 "$LAB/home-ann/proj"
want_status 0 sys ann new view --template tiny --mount "$LAB/home-ann/proj:/proj"
want_out '^hello$' sys ann exec view -- cat /proj/f
want_status 0 sys ann exec view -- sh -c 'echo made >/proj/made'
want "$(stat -c %u "$LAB/home-ann/proj/made")" = 20001
want_status 0 sys ann stop --force view
# What was ann's at the first start is a way to root's at the second: it shows what ann may read there, which is nothing.
rm -rf "$LAB/home-ann/proj"
ln -s "$LAB/work/secret" "$LAB/home-ann/proj"
want_status 0 sys ann start view
for user in agent root; do
	want_status 1 sys ann exec --workdir / --user $user view -- cat /proj/file
	want_status 1 sys ann exec --workdir / --user $user view -- sh -c 'echo x >/proj/new'
done
want_status 0 sys ann stop --force view
rm "$LAB/home-ann/proj"
want_err 1 "home-ann/proj'.*No such file" sys ann start view
chmod 700 "$LAB/home-bob"
ln -s "$LAB/home-bob/x" "$LAB/home-ann/proj"
mkdir "$LAB/home-bob/x"
want_err 1 "home-ann/proj'.*Permission denied" sys ann start view
rm -r "$LAB/home-ann/proj" "$LAB/home-bob/x"
want_status 0 sys ann rm --force view

t "USR-10: an owner who no longer exists: the box can be stopped and removed, not started with other rights"
mkdir "$LAB/home-bob/proj"
chown 20002:20002 "$LAB/home-bob/proj"
want_status 0 sys bob new left --template tiny --mount "$LAB/home-bob/proj:/proj"
bid=$(cubby ls --all --json </dev/null | jq -r '.[]|select(.name=="left").id')
want_status 0 cubby stop --all --force "$bid"
grep -v ^bob: /etc/passwd >"$LAB/work/passwd"
mount --bind "$LAB/work/passwd" /etc/passwd
want_err 1 "user 20002.*(exist|may not)" sys bob start left
want_err 1 "user 20002, doesn't exist" cubby start --all "$bid"
want_status 0 cubby rm --all --force "$bid"
umount /etc/passwd
want_status 0 sys bob exec mine -- true

t "USR-03: names in /tmp that somebody else made are refused, not used"
rm -rf /tmp/cubby-20001
if [[ -w /tmp ]]; then
	ln -s "$LAB/work" /tmp/cubby-20001
	chown -h 20002 /tmp/cubby-20001
	want_status 1 timeout 20 env -u CUBBY_STATE_DIR -u CUBBY_RUN_DIR -u CUBBY_CONFIG -u XDG_RUNTIME_DIR HOME="$LAB/home-ann" \
		setpriv --reuid=20001 --regid=20001 --clear-groups cubby ls -q
	want "$(grep -c '/tmp/cubby-20001' "$_err")" -ge 1
	want ! -e "$LAB/work/cubbyd.sock"
	rm /tmp/cubby-20001
	mkdir -m 777 /tmp/cubby-20001
	chown 20002 /tmp/cubby-20001
	want_err 1 '/tmp/cubby-20001.*(belongs to user 20002|not a directory of yours)' timeout 20 env -u CUBBY_STATE_DIR -u CUBBY_RUN_DIR -u CUBBY_CONFIG \
		-u XDG_RUNTIME_DIR HOME="$LAB/home-ann" setpriv --reuid=20001 --regid=20001 --clear-groups cubby ls -q
	rmdir /tmp/cubby-20001
fi

t "USR-04: a socket of somebody else's in our place isn't talked to"
mkdir "$LAB/work/fake"
chown 20002 "$LAB/work/fake"
as bob sh -c "cd $LAB/work/fake && exec timeout 10 python3 -c 'import socket,time
s=socket.socket(socket.AF_UNIX); s.bind(\"cubbyd.sock\"); s.listen(5); time.sleep(3)'" &
fake=$!
want_soon 5 test -S "$LAB/work/fake/cubbyd.sock"
call timeout 6 env CUBBY_RUN_DIR="$LAB/work/fake" cubby ls -q
want "$STATUS" != 0
want "$(grep -cE 'belongs to|user 20002|not .*yours|not root' "$_err")" -ge 1
wait "$fake" 2>/dev/null

t "USR-06: root in a user's environment leaves nothing of root's in the user's places"
want_status 0 own ann ls -q
want_status 0 env HOME="$LAB/home-ann" XDG_RUNTIME_DIR="$LAB/xdg-ann" cubby ls -q
want "$(find "$LAB/home-ann" "$LAB/xdg-ann" -uid 0 | wc -l)" = 0
want_status 0 own ann ls -q

t "USR-07: a value given with --env is in no command line, log or database of the host"
secret=zq8secret$RANDOM$RANDOM
SECRET=$secret call cubby exec --env SECRET roots -- sh -c 'echo ${#SECRET}; sleep 0.3'
want "$OUT" = ${#secret}
call cubby logs --json
want "$(grep -c "$secret" "$_out")" = 0
(SECRET=$secret cubby run --env SECRET --template tiny -- sleep 1 </dev/null >/dev/null 2>&1) &
sleep 0.4
# Read by the shell itself: a grep would find its own command line.
lines=$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ')
want "${lines/cubby run --env SECRET/seen}" != "$lines"
want "${lines/$secret/found}" = "$lines"
want "$(tr '\0' '\n' <"/proc/$(daemon_pids | head -n 1)/environ" | grep -c "$secret")" = 0
wait %% 2>/dev/null
want "$(cat "$CUBBY_STATE_DIR"/cubby.db* | grep -c "$secret")" = 0

t "USR-08: any umask gives the same safe modes"
for mask in 000 077 777; do
	d=$LAB/work/mask$mask
	want_status 0 bash -c "umask $mask; exec cubby --state-dir $d --run-dir $d.run ls -q"
	want "$mask $(stat -c %a "$d") $(stat -c %a "$d/boxes") $(stat -c %a "$d/cubby.db") $(stat -c %a "$d.run/boxes")" = "$mask 700 700 600 700"
	want "$(find "$d" "$d.run" -perm /022 ! -type s ! -type l | wc -l)" = 0
	want_status 0 cubby --state-dir "$d" --run-dir "$d.run" config --stop-daemon
done

t "USR-09: a home that can't be written, and none: said, with what to set"
mkdir "$LAB/work/ro"
mount -t tmpfs -o ro,mode=0777 none "$LAB/work/ro"
call timeout 20 env -u CUBBY_STATE_DIR -u CUBBY_RUN_DIR -u CUBBY_CONFIG HOME="$LAB/work/ro" XDG_RUNTIME_DIR="$LAB/xdg-ann" \
	setpriv --reuid=20001 --regid=20001 --clear-groups cubby ls -q
own ann config --stop-daemon </dev/null >/dev/null 2>&1
call timeout 20 env -u CUBBY_STATE_DIR -u CUBBY_RUN_DIR -u CUBBY_CONFIG HOME="$LAB/work/ro" XDG_RUNTIME_DIR="$LAB/xdg-ann" \
	setpriv --reuid=20001 --regid=20001 --clear-groups cubby ls -q
want "$STATUS" = 1
want "$(grep -c "$LAB/work/ro.*CUBBY_STATE_DIR" "$_err")" = 1
umount "$LAB/work/ro"
call timeout 20 env -u CUBBY_STATE_DIR -u CUBBY_RUN_DIR -u CUBBY_CONFIG -u HOME XDG_RUNTIME_DIR="$LAB/xdg-ann" \
	setpriv --reuid=20001 --regid=20001 --clear-groups cubby ls -q
want "$STATUS" = 1
want "$(grep -c "CUBBY_STATE_DIR" "$_err")" = 1

own ann config --stop-daemon </dev/null >/dev/null 2>&1
own bob config --stop-daemon </dev/null >/dev/null 2>&1
cubby rm --all --force $(cubby ls --all --json </dev/null | jq -r '.[].id') </dev/null >/dev/null 2>&1
