#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086
# CRSH-03, CRSH-05, CRSH-08, CRSH-14, CRSH-16: the state directory full, failing, read-only, damaged, newer, somebody else's; a
# reboot; two daemons at once; a daemon that is replaced while boxes and commands live on
# modes: root
# seconds: 150
. "${TEST_LIB:?}/box.bash"
. "$SRC/tests/fault/left.bash"
need_template tiny

# sandbox N SIZE: another installation on a small tmpfs of its own; cub: cubby in it.
small=$LAB/work/small
cub() { timeout -k 2 "$CALL_SECONDS" cubby --state-dir "$small/state" --run-dir "$LAB/run2" "$@"; }
cub_end() {
	local p
	cub rm -q --force $(cub ls --names </dev/null 2>/dev/null) </dev/null >/dev/null 2>&1
	cub config --stop-daemon </dev/null >/dev/null 2>&1
	for p in $(daemon_pids); do
		grep -qz "$LAB/run2" "/proc/$p/cmdline" && { kill "$p"; want_soon 5 test ! -d "/proc/$p"; }
	done
	umount "$small" 2>/dev/null
	rm -rf "$LAB/run2"
}
small_fs() { mkdir -p "$small" && mount -t tmpfs -o "size=$1,mode=0755" small "$small"; }

t "CRSH-03, RES-07: a full state directory: refused with the cause, old boxes intact, rm makes room"
want_status 0 small_fs 24m
want_status 0 cub template create tiny "dir:$TINY"
want_status 0 cub new old --template tiny
want_status 0 cub exec old -- sh -c 'echo precious >$HOME/file; sync'
call cub exec --json old -- sh -c 'dd if=/dev/zero of=$HOME/fill bs=64k 2>&1; echo x >$HOME/more'
want "$STATUS" != 0
want "$(tail -n 1 "$_err" | jq -r .end)" = disk
want "$(grep -c '^cubby: .*disk full' "$_err")" = 1
# The daemon goes on: reading works, and what needs room says what is wrong or works.
want_out 'old' cub ls
want_out 'precious' cub exec old -- sh -c 'cat $HOME/file'
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	call cub new "n$i" --template tiny
	[[ $STATUS == 0 ]] && continue
	want "$STATUS" = 1
	want "$(grep -cE '(full|[Nn]o space)' "$_err")" = 1
	break
done
want_out 'old' cub ls
want_status 0 cub exec old -- sh -c 'cat $HOME/file'
want_status 0 cub rm --force old
want_out '^n?' cub ls --names
want_status 0 cub new again --template tiny
want_status 0 cub exec again -- true
cub_end

t "CRSH-03: a full disk from the first moment, and a read-only one"
want_status 0 small_fs 64k
dd if=/dev/zero of="$small/fill" bs=4k >/dev/null 2>&1
want_err 1 '(full|[Nn]o space).*' cub new x --template tiny
want "$(grep -c "$small" "$_err")" -ge 1
umount "$small"
want_status 0 small_fs 8m
mkdir -m 700 "$small/state"
mount -o remount,ro "$small"
want_err 1 "$small/state.*[Rr]ead-only" cub new x
mount -o remount,rw "$small"
want_status 0 cub ls -q
cub_end

t "CRSH-03: an error of the disk at any write of the database: the old state stays, and the message names the file"
want_status 0 small_fs 32m
want_status 0 cub template create tiny "dir:$TINY"
want_status 0 cub new keep --template tiny
daemon2() { local p; for p in $(daemon_pids); do grep -qz "$LAB/run2" "/proc/$p/cmdline" && echo "$p"; done; }
broke=0
for call in pwrite64 fdatasync fsync ftruncate; do
	for error in EIO ENOSPC; do
		for n in 1 2 3 5 8; do
			pid=$(daemon2)
			[[ -n $pid ]] || { cub ls -q </dev/null >/dev/null 2>&1; pid=$(daemon2); }
			timeout 20 strace -qq -o /dev/null -p "$pid" -e trace="$call" -e inject="$call:error=$error:when=$n" 2>/dev/null &
			tracer=$!
			want_soon 5 grep -q "TracerPid:.*[1-9]" "/proc/$pid/status"
			call cub rename keep "kept"
			if ((STATUS)); then
				((broke++))
				want "$(grep -c "$small/state/cubby.db" "$_err")" -ge 1
			else
				cub rename kept keep </dev/null >/dev/null 2>&1
			fi
			call cub new trial --template tiny
			((STATUS)) && ((broke++))
			kill "$tracer"
			wait "$tracer" 2>/dev/null
			cub rm --force trial </dev/null >/dev/null 2>&1
			[[ $(cub ls --names </dev/null) == @(keep|kept) ]] || { fail "after $error at $call $n: $(cub ls </dev/null 2>&1)"; break 3; }
			cub rename kept keep </dev/null >/dev/null 2>&1
		done
	done
done
note "$broke operations were refused"
want $broke -ge 8
kill -9 "$(daemon2)"
want_out 'keep' cub ls
want_status 0 cub exec keep -- true
cub_end

db=$CUBBY_STATE_DIR/cubby.db
t "CRSH-08: a damaged, newer or foreign database is refused with advice, and left as it is"
want_status 0 cubby new a --template tiny
want_status 0 daemon_stop
rm -f "$db"-wal "$db"-shm
cp "$db" "$LAB/work/good.db"
refused_db() {	# refused_db REGEX: no command works, each says why, the file isn't touched
	local sum
	sum=$(sha256sum "$db")
	want_err 1 "$1" cubby ls
	want_err 125 "$1" cubby exec a -- true
	want "$(sha256sum "$db")" = "$sum"
	want -z "$(daemon_pids)"
}
truncate -s 5000 "$db"
refused_db "cubby.db.*damaged.*backup"
head -c 8192 /dev/urandom >"$db"
refused_db "cubby.db.*(damaged|not a database).*backup"
cp "$LAB/work/good.db" "$db"
dd if=/dev/urandom of="$db" bs=1 seek=4096 count=600 conv=notrunc 2>/dev/null
refused_db "cubby.db.*damaged.*backup"
cp "$LAB/work/good.db" "$db"
sqlite3 "$db" 'PRAGMA user_version=99'
refused_db "newer cubby \(schema 99.*upgrade"
cp "$LAB/work/good.db" "$db"
chown 20001 "$db"
refused_db "belongs to user 20001.*CUBBY_STATE_DIR"
chown 0 "$db"
rm "$db"
ln -s "$LAB/work/good.db" "$db"
want_err 1 "not a regular file" cubby ls
rm "$db"
cp "$LAB/work/good.db" "$db"
want_out 'a +(running|stopped)' cubby ls
want_status 0 cubby exec a -- true

t "CRSH-08: an empty database begins anew, and what is on disk stays"
want_status 0 cubby stop a
id=$(field a .id)
want_status 0 daemon_stop
rm -f "$db"*
: >"$db"
want_status 0 cubby ls -q
want -d "$CUBBY_STATE_DIR/boxes/$id"
want_out "leftover.*boxes/$id" cubby logs
want_status 0 daemon_stop
rm -f "$db"*
cp "$LAB/work/good.db" "$db"
want_status 0 cubby exec a -- true

t "CRSH-08: a row that makes no sense: said, left as it is, and removable"
want_status 0 daemon_stop
cp "$db" "$LAB/work/good.db"
sqlite3 "$db" "UPDATE boxes SET spec='{\"template\":5}'"
want_out 'a +broken|broken' cubby ls
want_err 125 'broken.*description.*cubby rm a' cubby exec a -- true
want_err 1 'broken.*cubby rm a' cubby rename a b
want_err 1 'broken.*cubby rm a' cubby limits a --pids 5
want_status 0 daemon_stop
want "$(sqlite3 "$db" 'SELECT spec FROM boxes')" = '{"template":5}'
want_out 'broken' cubby ls
want_status 0 cubby rm --force a
want_status 0 left

t "CRSH-08: stale sockets and locks are no hindrance; a live daemon is"
want_status 0 daemon_stop KILL
want -S "$CUBBY_RUN_DIR/cubbyd.sock"
want_status 0 cubby ls -q
want_status 0 daemon_stop
rm -f "$CUBBY_RUN_DIR/cubbyd.sock"
: >"$CUBBY_RUN_DIR/cubbyd.sock"
want_status 0 cubby ls -q
want "$(daemon_pids | wc -w)" = 1
# Another run directory with the same state: one daemon is enough.
CALL_SECONDS=30 want_err 1 "another cubbyd uses '$CUBBY_STATE_DIR'.*CUBBY_RUN_DIR" cubbyd --run-dir "$LAB/run3" 
rm -rf "$LAB/run3"

t "two daemons started at once: one serves, both commands work"
for i in 1 2 3 4 5; do
	want_status 0 daemon_stop
	for k in 1 2 3 4 5 6; do cubby ls -q </dev/null >/dev/null 2>"$LAB/work/two.$k" & done
	for k in 1 2 3 4 5 6; do wait -n || { fail "a command failed"; cat "$LAB/work"/two.*; }; done
	# The ones that came second see it and leave, a moment after the first has answered.
	for k in {1..100}; do (($(daemon_pids | wc -w) == 1)) && break; sleep 0.05; done
	want "$(daemon_pids | wc -w)" = 1
	((_checks++))
done

t "CRSH-05: after a reboot running and paused boxes are stopped, half-made ones gone, and all of them start"
want_status 0 cubby new run1 --template tiny
want_status 0 cubby exec run1 -- sh -c 'echo kept >$HOME/f'
want_status 0 cubby new pau1 --template tiny
want_status 0 cubby pause pau1
want_status 0 cubby new sto1 --template tiny
want_status 0 cubby stop sto1
want_status 0 daemon_stop KILL
for p in /proc/[0-9]*; do
	[[ $(cat "$p/comm" 2>/dev/null) == cubby-init ]] && kill -9 "${p#/proc/}" 2>/dev/null
done
# A frozen process ends only when it is thawed or its group is killed: at a reboot nothing of it is left.
for c in /sys/fs/cgroup/cubby-* /sys/fs/cgroup/*/cubby-*; do
	for b in "$c"/*/; do
		[[ -w $b/cgroup.kill ]] && echo 1 >"$b/cgroup.kill"
		[[ -w $b/freezer.state ]] && echo THAWED >"$b/freezer.state"
	done
done
sleep 0.3
for c in /sys/fs/cgroup/cubby-* /sys/fs/cgroup/*/cubby-*; do [[ -d $c ]] && rmdir "$c"/*/ "$c"; done 2>/dev/null
rm -rf "${CUBBY_RUN_DIR:?}"/*
want_status 0 cubby ls -q
want "$(field run1 .state):$(field pau1 .state):$(field sto1 .state)" = stopped:stopped:stopped
want_out 'kept' cubby exec run1 -- sh -c 'cat $HOME/f'
want_status 0 cubby exec pau1 -- true
want_status 0 cubby exec sto1 -- true
want_status 0 left
want_status 0 cubby rm --force run1 pau1 sto1

t "CRSH-14: the daemon is replaced while a box and its command live on"
want_status 0 cubby new up --template tiny
pid=$(field up .pid)
mkfifo "$LAB/work/in"
(cubby exec up -- sh -c 'echo one; read x; echo two $x; exit 5' <"$LAB/work/in" >"$LAB/work/live" 2>&1; echo "status $?" >>"$LAB/work/live") &
exec 8>"$LAB/work/in"
want_soon 5 grep -q one "$LAB/work/live"
want_status 0 daemon_stop TERM
want_status 0 cubby ls -q
want "$(field up .pid)" = "$pid"
want_status 0 daemon_stop KILL
want_status 0 cubby exec up -- true
want "$(field up .pid)" = "$pid"
echo three >&8
exec 8>&-
want_soon 5 grep -q 'status 5' "$LAB/work/live"
want "$(cat "$LAB/work/live")" = "$(printf 'one\ntwo three\nstatus 5')"
want_status 0 cubby rm --force up

t "a run of a killed daemon goes on to its end, and leaves nothing"
(cubby run --template tiny -- sh -c 'echo one; sleep 1; echo two; exit 6' </dev/null >"$LAB/work/live" 2>&1; echo "status $?" >>"$LAB/work/live") &
want_soon 5 grep -q one "$LAB/work/live"
want_status 0 daemon_stop KILL
want_status 0 cubby ls -q
want_soon 5 grep -q 'status 6' "$LAB/work/live"
want "$(cat "$LAB/work/live")" = "$(printf 'one\ntwo\nstatus 6')"
want_soon 6 left

t "CRSH-16: the log is bounded"
want_status 0 daemon_stop
printf 'pool_size = 0\nlog_keep = 300\n' >"$CUBBY_CONFIG"
want_status 0 cubby new l --template tiny
for ((i = 0; i < 300; i++)); do cubby pause l && cubby resume l; done </dev/null >/dev/null 2>&1
want_status 0 cubby rm --force l
want_status 0 daemon_stop
want "$(sqlite3 "$db" 'SELECT count(*) FROM events')" -le 560
want "$(sqlite3 "$db" 'SELECT count(*) FROM events')" -ge 100

t "a state directory of another owner is refused, and so is a file in its place"
want_err 1 "belongs to user 20001.*CUBBY_STATE_DIR" sh -c "mkdir -p $LAB/work/foreign && chown 20001 $LAB/work/foreign && exec cubby --state-dir $LAB/work/foreign --run-dir $LAB/run4 ls"
: >"$LAB/work/afile"
want_err 1 "$LAB/work/afile" cubby --state-dir "$LAB/work/afile" --run-dir "$LAB/run4" ls
rm -rf "$LAB/run4"
want_status 0 left_rows
