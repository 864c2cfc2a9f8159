#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086
# RES: what a box can use up, and what of it others feel
# modes: root
# seconds: 120
. "${TEST_LIB:?}/box.bash"
printf 'pool_size = 0\n' >"$CUBBY_CONFIG"
need_template tiny
want_level() { field b ".grade[]|select(.id==\"$1\").level"; }
answers() {	# answers SECONDS CMD...: status 0 within that time
	local s=$1 t0=${EPOCHREALTIME/./}
	shift
	want_status 0 "$@"
	want $(((${EPOCHREALTIME/./} - t0) / 1000)) -le $((s * 1000))
}
usage() { cubby info --json b </dev/null | jq -r ".usage.$1"; }

t "RES-01: a fork bomb is capped; exec, other boxes, stop and rm answer meanwhile"
want_status 0 cubby new b --template tiny --pids 200
want_status 0 cubby new other --template tiny
timeout 60 cubby exec b -- probe bomb 20 </dev/null >/dev/null 2>&1 &
bomb=$!
want_soon 5 test "$(usage pids)" -ge 1
want_soon 5 sh -c "test \$(cubby info --json b </dev/null | jq .usage.pids) -ge 150"
want "$(usage pids)" -le 200
answers 5 cubby exec other -- true
answers 5 cubby ls -q
answers 5 cubby stop --force b
wait "$bomb"
want_status 0 cubby start b
timeout 60 cubby exec b -- probe bomb 20 </dev/null >/dev/null 2>&1 &
bomb=$!
want_soon 5 sh -c "test \$(cubby info --json b </dev/null | jq .usage.pids) -ge 150"
answers 5 cubby rm --force b
wait "$bomb"

t "RES-01: in a full box a new command is told why"
want_status 0 cubby new b --template tiny --pids 30
timeout 20 cubby exec b -- probe fork 200 15 </dev/null >"$LAB/work/f" 2>&1 &
full=$!
want_soon 5 grep -q children "$LAB/work/f"
call cubby exec b -- sh -c true
want "$STATUS" != 0
want "$(grep -c 'too many processes' "$_err")" = 1
want_status 0 cubby limits b --pids 300
want_status 0 cubby exec b -- true
kill "$full"
wait "$full" 2>/dev/null
want_soon 5 cubby exec b -- true
want_status 0 cubby rm --force b

t "RES-02: only the box's processes die when its memory is used up"
want_status 0 cubby new b --template tiny --memory 48M
d=$(daemon_pids)
want_status 0 cubby exec b -- probe alloc 20M
want_status 137 cubby exec b -- probe alloc 100M
want_status 137 cubby exec b -- probe alloc 100M
want "$(daemon_pids)" = "$d"
want "$(field b .state)" = running
want_status 0 cubby exec b -- true
want_status 0 cubby exec other -- probe alloc 100M

t "RES-03: files in memory count as the box's memory"
for where in /dev/shm/f /run/f memfd; do
	call cubby exec --user root b -- probe fill $where 100M
	want "$where $STATUS" != "$where 0"
	cubby exec --user root b -- rm -f "$where" </dev/null 2>/dev/null
	want_status 0 cubby exec --user root b -- sh -c "probe fill $where 1M; rm -f $where"
done
want_status 0 cubby exec --user root other -- sh -c 'probe fill memfd 100M'

t "RES-04: page tables, sockets and directory entries count too"
want_status 0 cubby stop --force b
want_status 0 cubby start b
blocked_or_killed() {
	call "$@"
	((_checks++, _blocked++))
	[[ $STATUS != 0 ]] || { fail "should be refused or killed: $*" 1; _show; }
}
blocked_or_killed cubby exec b -- probe page-tables 40000
blocked_or_killed cubby exec b -- sh -c 'ulimit -n 100000; exec probe socket-buffers 2000'
allowed cubby exec b -- probe page-tables 100
allowed cubby exec b -- probe socket-buffers 10
want "$(usage memory_peak)" -le $((49 << 20))

t "RES-05: open files of many processes stay far from the host's limit"
before=$(cut -f1 /proc/sys/fs/file-nr)
want_status 1 cubby exec b -- probe hold-open 10000000
timeout 20 cubby exec b -- sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do probe hold-open 1000 3 & done; wait' </dev/null >/dev/null 2>&1 &
held=$!
sleep 1
want $(($(cut -f1 /proc/sys/fs/file-nr) - before)) -lt 20000
answers 5 cubby ls -q
wait "$held"

t "RES-06, RES-07: inodes and bytes of a small disk: the box gets ENOSPC, the daemon goes on, the box can be removed"
small=$LAB/work/small
mkdir "$small"
want_status 0 mount -t tmpfs -o size=30m,nr_inodes=3000 none "$small"
cub() { timeout -k 2 20 cubby --state-dir "$small/state" --run-dir "$LAB/run2" "$@"; }
want_status 0 cub template create tiny "dir:$TINY"
want_status 0 cub new b --template tiny
want_status 0 cub exec --user root b -- sh -c 'mkdir /many && exec probe files /many 100'
call cub exec --json --user root b -- probe files /many 100000
want "${OUT#*ENOSPC}" != "$OUT"
want "$STATUS:$(tail -n 1 "$_err" | jq -r .end)" = 1:disk
want "$(cub ls --names </dev/null)" = b
want_status 0 cub rm --force b
want_status 0 cub new b --template tiny
want_status 0 cub rm --force b
cub config --stop-daemon </dev/null >/dev/null 2>&1
want_soon 5 umount "$small"
rm -rf "$LAB/run2"

t "RES-08, RES-09: per-user limits of one box don't bite another, nor the host"
call cubby exec b -- probe inotify 1000
first=$OUT
want_status 0 cubby exec other -- probe inotify 20
want_status 0 as ann probe inotify 20
note "inotify in a box: $first"
cubby exec b -- probe sysv msg 100000 </dev/null >/dev/null 2>&1
cubby exec b -- probe sysv shm 100000 </dev/null >/dev/null 2>&1
want_status 0 cubby exec other -- probe sysv msg 5
want_status 0 cubby exec other -- probe sysv shm 5
want_status 0 probe sysv msg 1
blocked cubby exec b -- probe keyctl add
if probe keyctl add >/dev/null 2>&1; then allowed probe keyctl add; else allowed cubby exec b -- probe socket unix stream; fi
ipcrm -a 2>/dev/null

t "RES-10: busy loops in a box with half a CPU leave the host its own"
want_status 0 cubby limits b --cpus 0.5
timeout 30 cubby exec b -- probe busy 4 3 </dev/null >/dev/null 2>&1 &
busy=$!
sleep 0.3
u0=$(usage cpu_us) t0=${EPOCHREALTIME/./}
answers 2 cubby exec other -- true
sleep 1.2
u1=$(usage cpu_us) t1=${EPOCHREALTIME/./}
want $(((u1 - u0) * 100 / (t1 - t0))) -le 70
want $(((u1 - u0) * 100 / (t1 - t0))) -ge 10
wait "$busy"
want_status 0 cubby limits b --cpus 2

t "RES-11: a flood of output is a matter of its reader: nothing grows"
rss() { awk '/^VmRSS/{print $2}' "/proc/$1/status"; }
d=$(daemon_pids)
r0=$(rss "$d")
timeout 30 cubby exec b -- sh -c 'exec probe pour 100G' </dev/null 2>/dev/null | { sleep 2; head -c 100 >/dev/null; } &
flood=$!
sleep 1
c=$(pgrep -f 'cubby exec b -- sh -c exec probe pour' | tail -n 1)
want "$(rss "$c")" -lt 8000
wait "$flood"
want $(($(rss "$d") - r0)) -lt 4000
want_out '^100000000$' bash -c 'timeout 20 cubby exec b -- probe pour 100000000 </dev/null | wc -c'

t "RES-12: orphans are reaped by the box's init"
want_status 0 cubby limits b --pids 200
want_status 0 cubby exec b -- probe zombies 2000
want_soon 5 sh -c "test \$(cubby info --json b </dev/null | jq .usage.pids) -le 6"
want_out '^0$' cubby exec --user root b -- sh -c 'n=0; for p in /proc/[0-9]*/stat; do read -r a c s r <$p 2>/dev/null || continue; [ "$s" = Z ] && n=$((n+1)); done; echo $n'

t "RES-14: a write storm with fsync leaves the daemon answering"
timeout 20 cubby exec b -- sh -c 'i=0; while [ $i -lt 100 ]; do dd if=/dev/zero of=$HOME/w bs=64k count=20 conv=fsync 2>/dev/null; i=$((i+1)); done' </dev/null >/dev/null 2>&1 &
storm=$!
for i in 1 2 3; do answers 2 cubby exec other -- true; answers 2 cubby ls -q; done
wait "$storm"

t "RES-15: nested groups, mounts and namespaces are refused or capped"
allowed host_probe unshare user
blocked box_probe b unshare user
mkdir "$LAB/work/m"
allowed host_probe many-mounts "$LAB/work/m" 5
call box_probe b many-mounts /tmp 1000000
want "$STATUS" = 1
want "$(cubby exec --user root b -- sh -c 'wc -l </proc/self/mounts' </dev/null)" -le 100001
call cubby exec --user root b -- sh -c 'for d in /sys/fs/cgroup /sys/fs/cgroup/*; do probe many-cgroups $d 1000 && exit 1; done; exit 0'
want "$STATUS" = 0
want_status 0 cubby exec b -- true

t "RES-18: locks taken inside don't hold up verbs"
mkdir "$LAB/work/proj"
: >"$LAB/work/proj/f"
want_status 0 cubby new locker --template tiny --mount "$LAB/work/proj:/proj"
timeout 20 cubby exec locker -- probe lock /proj/f 10 </dev/null >"$LAB/work/lock" 2>&1 &
lock=$!
want_soon 5 grep -q through "$LAB/work/lock"
want_status 1 probe lock "$LAB/work/proj/f"
answers 4 cubby stop --force locker
answers 4 cubby start locker
answers 4 cubby rm --force locker
wait "$lock"
want_status 0 probe lock "$LAB/work/proj/f"

t "RES-19: a box has no swap unless it is given some"
want "$(cubby limits --json b </dev/null | jq .swap)" = 0
want "$(usage swap)" = 0

t "RES-20: 100 boxes stopped: the list is there at once"
for ((i = 0; i < 100; i++)); do cubby new "n$i" --template tiny </dev/null >/dev/null && cubby stop --force "n$i" </dev/null >/dev/null || fail "box $i"; done
((_checks++))
answers 1 cubby ls
want "$(cubby ls --names </dev/null | wc -l)" = 102
want_status 0 daemon_stop
answers 1 cubby ls
# shellcheck disable=SC2046
answers 15 cubby rm -q --force $(cubby ls --names </dev/null | grep ^n)
