#!/bin/bash
# doors of the kernel that a box has no business with, and its namespaces, ids and capabilities
# modes: root user userns
# seconds: 150
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/isolation.bash"
need_template tiny
mk b
mk c
mk n --nesting

t "KRN-01 no BPF"
lacks b bpf
allowed box_probe b socket unix stream

t "KRN-02 no io_uring"
lacks b io_uring
blocked box_probe n io_uring
allowed box_probe b socket unix stream

t "KRN-03 no userfaultfd, in neither mode"
lacks b userfaultfd
lacks b userfaultfd user
allowed box_probe b socket unix stream

t "KRN-04 no kexec, reboot or swap"
for verb in kexec kexec-file reboot-badarg swapon; do
	lacks b $verb
	blocked box_probe n $verb
done
if [[ $LAB_AS == root ]]; then allowed outside swapon; else allowed box_probe b kill 1; fi

t "KRN-05 no modules are loaded or unloaded"
lacks b module-load
lacks b module-unload
blocked box_probe n module-load
allowed box_probe b socket unix stream

t "KRN-06 rare socket families, file systems and ciphers are refused, and no module came for them"
modules=$(cat /proc/modules 2>/dev/null | wc -l)
for family in ax25 ipx appletalk x25 rds llc can tipc bluetooth nfc kcm qipcrtr smc xdp mctp packet; do
	lacks b socket $family raw
	blocked box_probe n socket $family dgram
done
blocked box_probe b socket inet dccp 33
blocked box_probe b socket netlink raw 9
blocked box_probe b socket netlink raw 15
for fs in ext4 xfs btrfs squashfs erofs fuse nfs cifs overlay ntfs3 iso9660 tmpfs proc; do
	blocked box_probe b mount $fs /tmp
	blocked box_probe b fsopen $fs
	blocked box_probe_user b mount $fs /tmp
done
for family in unix inet inet6; do allowed box_probe b socket $family stream; done
allowed box_probe b socket netlink raw 0
want "$modules" = "$(cat /proc/modules 2>/dev/null | wc -l)"

t "KRN-07 no sockets of the kernel's ciphers"
lacks b socket alg seqpacket
blocked box_probe n socket alg seqpacket
allowed box_probe b socket unix seqpacket

t "KRN-08 no vsock"
lacks b socket vsock stream
blocked box_probe n socket vsock dgram
allowed box_probe b socket unix stream

t "KRN-09 raw sockets there are at most in a network namespace of the box's own; packet sockets there are none"
call outside socket inet raw 1
[[ $STATUS == 0 ]] && allowed outside socket inet raw 1
if [[ $LAB_AS == root ]]; then
	# Root of the box has no power over the namespace, which the host's root made.
	blocked box_probe b socket inet raw 1
else
	allowed box_probe b socket inet raw 1
fi
blocked box_probe_user b socket inet raw 1
pair b socket packet raw 768
want_out '^lo$' in_box b sed -n 's/ *\([a-z0-9]*\):.*/\1/p' /proc/net/dev
want "$(in_box b readlink /proc/self/ns/net)" != "$(readlink /proc/self/ns/net)"
want "$(in_box b readlink /proc/self/ns/net)" != "$(in_box c readlink /proc/self/ns/net)"

t "KRN-10 nf_tables doesn't answer"
pair b nft
blocked in_box n unshare -Urn /bin/probe nft

t "KRN-11 abstract sockets of the host, and of another box, can neither be seen nor reached"
probe abstract-listen host-side-socket 60 >"$LAB/work/.listen" &
listener=$!
want_soon 5 grep -q through "$LAB/work/.listen"
allowed probe abstract-sockets
allowed probe abstract-connect host-side-socket
blocked box_probe b abstract-sockets
blocked box_probe b abstract-connect host-side-socket
blocked box_probe_user b abstract-connect host-side-socket
kill "$listener"
wait "$listener" 2>/dev/null
cubby exec --detach c -- /bin/probe abstract-listen box-side-socket 60
want_soon 5 in_box c /bin/probe abstract-connect box-side-socket
allowed box_probe c abstract-connect box-side-socket
blocked box_probe b abstract-connect box-side-socket
blocked probe abstract-connect box-side-socket

t "b09 control sockets in /run of the host are not in a box"
mkdir -p "$LAB/work/run"
if [[ $LAB_AS == root ]]; then socket=/run/docker.sock; else socket=$LAB/work/run/docker.sock; fi
probe unix-listen "$socket" 60 >"$LAB/work/.listen" &
listener=$!
want_soon 5 grep -q through "$LAB/work/.listen"
allowed probe unix-connect "$socket"
for box in b n; do
	for path in "$socket" /run/docker.sock /var/run/docker.sock /run/lab.sock /run/cubby/cubbyd.sock "$CUBBY_RUN_DIR/cubbyd.sock"; do
		blocked box_probe $box unix-connect "$path"
		blocked box_probe_user $box unix-connect "$path"
	done
	want_not_out . in_box $box find /run /tmp /var -type s
done
kill "$listener"
wait "$listener" 2>/dev/null
rm -f "$socket"

t "KRN-12 setns: no namespace of process 1 or of itself is entered"
for ns in user mnt pid net ipc uts cgroup time; do
	[[ $ns == user ]] || pair b setns /proc/self/ns/$ns
	blocked box_probe b setns /proc/1/ns/$ns
	blocked box_probe_user b setns /proc/1/ns/$ns
	blocked box_probe n setns /proc/1/ns/$ns
done

t "KRN-13 no namespaces of its own, unless nesting is allowed"
for call in unshare clone clone3; do
	for ns in user mnt pid net ipc uts cgroup; do
		blocked box_probe b $call $ns
		blocked box_probe_user b $call $ns
	done
done
for call in unshare clone clone3; do
	allowed box_probe n $call user
	allowed box_probe_user n $call user
done
allowed in_box n unshare -Urm /bin/probe mount tmpfs /tmp
blocked box_probe b syscall 272 0x10020000
blocked box_probe b write-text /proc/sys/user/max_user_namespaces 100
blocked box_probe n write-text /proc/sys/user/max_user_namespaces 100
want_out 'nesting' field b '.nesting | "nesting \(.)"'

t "KRN-14 process 1 can't be traced, read or robbed of descriptors; other boxes aren't there"
allowed in_box b sh -c 'probe wait & p=$!; probe ptrace $p; s=$?; kill -9 $p; exit $s'
allowed in_box b sh -c 'probe wait & p=$!; probe vm-readv $p; s=$?; kill -9 $p; exit $s'
for box in b n; do
	for probe in box_probe box_probe_user; do
		blocked $probe $box ptrace 1
		blocked $probe $box vm-readv 1
		blocked $probe $box pidfd-getfd 1 0
		blocked $probe $box open-read /proc/1/mem
	done
done
cubby exec --detach c -- /bin/sleep 61.25
want_soon 5 sh -c 'cubby exec --user root c -- ps | grep -q 61.25'
want_not_out '61.25' in_box b ps
want_status 1 in_box b sh -c 'for p in /proc/[0-9]*; do grep -q "6[1].25" $p/cmdline && exit 0; done; exit 1'
want_status 0 in_box c sh -c 'for p in /proc/[0-9]*; do grep -q "6[1].25" $p/cmdline && exit 0; done; exit 1'

t "KRN-14 handlers of calls can't be traced or killed off by the box's user"
allowed box_probe b kill 1
for pid in $(in_box b /bin/probe pids </dev/null | awk '/cubby-init/ { print $1 }'); do
	blocked box_probe b ptrace "$pid"
	blocked box_probe_user b ptrace "$pid"
	blocked box_probe_user b kill "$pid" 9
done

t "KRN-15 a socket in a mounted project is the one way to a process of the host, and only there"
mkdir -p "$LAB/work/proj" "$LAB/work/other"
chmod 777 "$LAB/work/proj"
mk p --mount "$LAB/work/proj"
probe unix-listen "$LAB/work/other/sock" 60 >"$LAB/work/.listen" &
listener=$!
want_soon 5 grep -q through "$LAB/work/.listen"
allowed probe unix-connect "$LAB/work/other/sock"
blocked box_probe p unix-connect "$LAB/work/other/sock"
blocked box_probe_user p unix-connect "$LAB/work/proj/../other/sock"
kill "$listener"
wait "$listener" 2>/dev/null
want_out 'socket' grep -i 'socket' "$SRC/SECURITY.md"

t "KRN-16 /dev holds the plain nodes and nothing else"
nodes='c /dev/full 1:7
c /dev/null 1:3
c /dev/pts/ptmx 5:2
c /dev/random 1:8
c /dev/tty 5:0
c /dev/urandom 1:9
c /dev/zero 1:5'
for box in b n; do
	want "$(in_box $box /bin/probe dev-list </dev/null | LC_ALL=C sort)" = "$nodes"
	want "$(in_box $box ls -A /dev </dev/null | tr '\n' ' ')" = 'fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero '
done
want_out "^$nodes"'
c /dev/pts/[0-9]+ 136:[0-9]+' sh -c 'timeout 10 script -qec "cubby exec --user root -t b -- /bin/probe dev-list" /dev/null |
	tr -d "\r\0" | sed "s/^^@//; /^c /!d" | LC_ALL=C sort | sed "/pts.[0-9]/H; /pts.[0-9]/d; \${ G; s/\n\n/\n/ }"'

t "KRN-17 b10 keystrokes can't be pushed into a terminal, its own or the operator's"
allowed outside tiocsti plain || allowed box_probe b kill 1
lacks b tiocsti plain
lacks b tiocsti high
terminal() { timeout 15 script -qec "sh -c '$1'" /dev/null </dev/null | tr -d '\r\0'; }	# script(1) passes the end of its input on as a character
want_out 'through|refused' terminal 'cubby exec -t b -- /bin/true; probe tiocsti plain /dev/tty'
for how in plain high; do
	want_out 'refused.*got:$|refused.*got:
' terminal "cubby exec -t b -- /bin/probe tiocsti $how /dev/tty; read -t 0.3 x; echo got:\$x"
	want_out 'refused' terminal "cubby exec -t --user root n -- /bin/probe tiocsti $how /dev/tty"
	want_out 'refused' terminal "cubby exec -T b -- /bin/probe tiocsti $how /dev/tty"
done

t "KRN-17 without a terminal of its own a command has none at all"
allowed box_probe b open-write /dev/null
blocked box_probe b open-write /dev/tty
blocked in_box b /bin/probe tiocsti plain /dev/tty
want_out '^0 (pipe|char)
1 pipe
2 pipe
session [0-9]+ leader 1$' in_box b /bin/probe terminal
want_out '0 tty
1 tty
2 tty
session [0-9]+ leader 1' terminal 'cubby exec -t b -- /bin/probe terminal'

t "KRN-18 the console's selection is out of reach, and what cubby itself prints of a box is escaped"
blocked box_probe b tioclinux
blocked box_probe_user b tioclinux
evil=$'\e]0;title\a\e[5n\e]52;c;eA==\a'
call cubby exec b -- "/bin/no$evil"
want "$STATUS" = 127
want "${ERR//[!$'\e\a']/}" = ''
call cubby exec --user root b -- sh -c 'echo "$1"' sh "$evil"
want "${OUT//[!$'\e']/}" != ''
call in_box b sh -c "mkdir -p '/tmp/d$evil'; : >'/tmp/d$evil/f'; chmod 0 '/tmp/d$evil/f'"
for args in "b:/tmp/d$evil/none $LAB/work/o1" "b:/tmp/none$evil $LAB/work/o2"; do
	call cubby cp "${args% *}" "${args##* }"
	want "$STATUS" != 0
	want "${ERR//[!$'\e\a']/}" = ''
done
call cubby new --template tiny "a$evil"
want "${ERR//[!$'\e\a']/}" = ''
call cubby exec "b$evil" -- true
want "${ERR//[!$'\e\a']/}" = ''
call cubby exec -w "/tmp/d$evil/none" b -- true
want "$STATUS" = 125
want "${ERR//[!$'\e\a']/}" = ''
# shellcheck disable=SC2086
call cubby new --template tiny --net none $WEAK --workdir "/tmp/d$evil" esc
want "$STATUS" = 0
for verb in "info esc" "ls" "top --once" "logs"; do
	# shellcheck disable=SC2086
	call cubby $verb
	want "${OUT//[!$'\e\a']/}" = ''
done
allowed box_probe b kill 1

t "KRN-19 a set-uid program of the image makes its user root of the box, and of nothing else"
mkdir -p "$LAB/work/suid"
cp -a "$TINY/." "$LAB/work/suid/"
cp "$TINY/bin/probe" "$LAB/work/suid/bin/suprobe"
chmod 04755 "$LAB/work/suid/bin/suprobe"
want_status 0 cubby template create suid "dir:$LAB/work/suid"
# shellcheck disable=SC2086
want_status 0 cubby new --quiet --template suid --net none $WEAK s
want_out 'Uid 1000	0	0	0' cubby exec --user agent s -- /bin/suprobe ids
allowed cubby exec --user agent s -- /bin/suprobe setuid 0
blocked cubby exec --user agent s -- /bin/probe setuid 0
for probe in "open-write /proc/sys/kernel/core_pattern" "mount tmpfs /tmp" "unshare user" "open-read /proc/1/mem" "mknod /tmp/n 1 3" \
	"module-load" "ptrace 1"; do
	# shellcheck disable=SC2086
	blocked cubby exec --user agent s -- /bin/suprobe $probe
done

t "KRN-20 capabilities: a container's for root, none for others, and no more to be had"
caps='CapInh 0000000000000000
CapPrm 00000000a80425fb
CapEff 00000000a80425fb
CapBnd 00000000a80425fb
CapAmb 0000000000000000'
# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD AUDIT_WRITE SETFCAP
sum=0
for bit in 0 1 3 4 5 6 7 8 10 13 18 27 29 31; do ((sum |= 1 << bit)); done
want "$(printf '%016x' $sum)" = 00000000a80425fb
for box in b n; do
	want_out "^$caps" in_box $box /bin/probe caps
	want_out "^CapInh 0+
CapPrm 0+
CapEff 0+
CapBnd 00000000a80425fb
CapAmb 0+" in_box_user $box /bin/probe caps
done
want_out "^$caps" cubby exec --user agent s -- /bin/suprobe caps
pid=$(field b .pid)
want_out 'CapBnd:	00000000a80425fb' cat "/proc/$pid/status"

t "KRN-21 the filter is on every thread of every process"
cubby exec --detach b -- /bin/sleep 60
for box in b n; do
	want_out 'Seccomp 2' in_box $box /bin/probe seccomp-mode
	want_not_out 'Seccomp [01]' in_box $box /bin/probe seccomp-mode
done
want_out 'Seccomp [01]' probe seccomp-mode

t "KRN-22 KRN-23 neither the clock nor the kernel's log"
lacks b settime-bad
lacks b syslog
blocked box_probe n settime-bad
blocked box_probe n syslog
if [[ $LAB_AS == root ]]; then allowed outside syslog; else allowed box_probe b kill 1; fi

t "KRN-24 no real-time scheduling, no negative nice value, no memory locked beyond the limit, no higher limit"
lacks b realtime
lacks b nice
lacks b mlock 64M
lacks b raise-rlimit
if [[ $LAB_AS == root ]]; then allowed outside nice; else allowed box_probe b mlock 1M; fi

t "KRN-25 IPC objects of the host and of other boxes don't exist here"
want_out . in_box c sh -c 'probe sysv shm 3 >/dev/null; probe sysv msg 2 >/dev/null; ipcs -m | grep -c 0x; echo x >/dev/shm/of-c; ls /dev/shm'
before=$(wc -l </proc/sysvipc/shm)
want_not_out 'of-c' in_box b ls -A /dev/shm /dev/mqueue
want "$(in_box b wc -l /proc/sysvipc/shm </dev/null)" = '1 /proc/sysvipc/shm'
want "$before" = "$(wc -l </proc/sysvipc/shm)"
want "$(in_box b readlink /proc/self/ns/ipc)" != "$(in_box c readlink /proc/self/ns/ipc)"

t "KRN-26 no FUSE"
allowed box_probe b open-read /dev/zero
blocked box_probe b open-write /dev/fuse
blocked box_probe b mount fuse /tmp fd=3,rootmode=40000,user_id=0,group_id=0
blocked box_probe n open-write /dev/fuse
blocked box_probe b mknod /tmp/fuse 10 229

t "KRN-27 every namespace is the box's own"
ids() { sed 's/.*\[\(.*\)\]/\1/' | tr '\n' ' '; }
want_out ' ' sh -c 'probe nsids'
for ns in user mnt pid net ipc uts cgroup time; do
	here=$(readlink /proc/self/ns/$ns) in_b=$(in_box b readlink /proc/self/ns/$ns) in_c=$(in_box c readlink /proc/self/ns/$ns)
	want "$here" != ''
	want "$in_b" != ''
	want "$here" != "$in_b"
	want "$here" != "$in_c"
	want "$in_b" != "$in_c"
done

t "KRN-28 root of a box is nobody on the host"
pid=$(field b .pid)
uid=$(awk '/^Uid:/ { print $2 }' "/proc/$pid/status")
want "$uid" -gt 0
want "$uid" != "$(id -u)"
if [[ $LAB_AS == root ]]; then
	want_not_out '(^|
) *[0-9]+ +0 ' in_box b cat /proc/self/uid_map
	want "$(in_box b awk '{ print $2 }' /proc/self/uid_map </dev/null)" != "$(in_box c awk '{ print $2 }' /proc/self/uid_map </dev/null)"
	want "$uid" -ge 65536
fi
blocked box_probe_user b setuid 0
blocked box_probe b setuid 70000
allowed box_probe b setuid 12

t "KRN-29 the filter decides by registers alone: nobody is asked who could be raced"
filter=$(find "$BUILD" -name seal_filter.h | head -n 1)
want_out . grep -c 0x7fff0000 "$filter"
want_not_out 0x7fc00000 cat "$filter"

t "other doors: personality, I/O ports, quotas, handles, keyrings, performance counters, host name"
for verb in "keyctl session" "keyctl add" "keyctl request" perf "iopl" quotactl "by-handle /" "loop-device" "sethostname x" "setuid 4294967294"; do
	# shellcheck disable=SC2086
	lacks b $verb
done
allowed box_probe b personality
# The numbers of x32, and those above all: not there.
blocked box_probe b syscall 0x40000029 2 1 0
blocked box_probe b syscall 600
