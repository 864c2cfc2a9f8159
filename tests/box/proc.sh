#!/bin/bash
# /proc and /sys of a box: no switch of the host opens, nothing of the host shows
# modes: root user userns
# seconds: 120
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/isolation.bash"
# In the environment of whoever makes the template and the boxes, and starts the daemon.
marker=host$RANDOM$RANDOM$RANDOM
export HIDDEN_FROM_BOXES=$marker
need_template tiny
mk b
mk n --nesting
mk m
unset HIDDEN_FROM_BOXES

t "PROC-01 no switch of the kernel opens for writing"
allowed box_probe b create /tmp/x
for key in kernel/core_pattern kernel/panic kernel/panic_on_oops vm/overcommit_memory vm/drop_caches kernel/hostname \
	kernel/domainname kernel/randomize_va_space kernel/pid_max kernel/threads-max fs/file-max fs/protected_symlinks \
	kernel/dmesg_restrict kernel/kptr_restrict kernel/modprobe kernel/printk; do
	[[ -e /proc/sys/$key ]] && pair b open-write "/proc/sys/$key"
done

t "PROC-01 of all files in /proc/sys not one opens"
allowed outside any-writable /proc/sys/net
blocked box_probe b any-writable /proc/sys
blocked box_probe_user b any-writable /proc/sys
blocked box_probe n any-writable /proc/sys

t "PROC-02 the system request key can't be triggered"
# Where the kernel has none, there is no such file; a file of the box's own shows that the probe can.
want_status 0 in_box b touch /tmp/sysrq-trigger
allowed box_probe b open-write /tmp/sysrq-trigger
blocked box_probe b open-write /proc/sysrq-trigger
blocked box_probe_user b open-write /proc/sysrq-trigger

t "PROC-03 no byte of the kernel's memory, log, page flags or symbols"
for file in /proc/kcore /proc/kmsg /proc/kpageflags /proc/kpagecount /proc/kpagecgroup /proc/kallsyms /proc/vmallocinfo \
	/dev/mem /dev/kmem /dev/port /dev/kmsg /sys/kernel/debug /sys/kernel/tracing/trace; do
	lacks b open-read "$file"
done
allowed box_probe b open-read /proc/self/status

t "PROC-03 neither where a crash dump finds the kernel, nor its build"
for file in vmcoreinfo notes; do
	[[ -s /sys/kernel/$file || $(wc -c <"/sys/kernel/$file" 2>/dev/null) -gt 0 ]] || continue
	want_out '^0 ' in_box b wc -c "/sys/kernel/$file"
done

t "PROC-03 symbol addresses of the host are not in /proc/kallsyms"
want_out '^0 ' in_box b wc -c /proc/kallsyms
want_out '^0 ' in_box_user b wc -c /proc/kallsyms
want_not_out '^0 ' in_box_user b wc -c /proc/version

t "PROC-04 of process 1 neither root, cwd, environment, descriptors nor memory can be had"
want_status 0 in_box b /bin/probe list /proc/self/root/
allowed box_probe b list /proc/self/root/
allowed box_probe b open-read /proc/self/environ
for what in root/ cwd/; do
	blocked box_probe b list "/proc/1/$what"
	blocked box_probe_user b list "/proc/1/$what"
done
for what in environ maps mem auxv io stack syscall fd/0 fd/1 exe pagemap; do
	blocked box_probe b open-read "/proc/1/$what"
	blocked box_probe_user b open-read "/proc/1/$what"
done

t "PROC-04 a search through every process in sight finds nothing of the host"
mkdir -p "$LAB/work/$marker"
printf '%s' "$marker" >"$LAB/work/$marker/file"
allowed env HIDDEN_FROM_BOXES="$marker" grep -qz "$marker" /proc/self/environ
allowed outside find-marker "$(hex "$marker")" "$LAB/work/$marker"
blocked box_probe m find-marker "$(hex "$marker")"
blocked box_probe_user m find-marker "$(hex "$marker")"
want_status 0 in_box m sh -c "echo $marker >/tmp/planted"
allowed box_probe m find-marker "$(hex "$marker")"
cubby rm --force m >/dev/null

t "PROC-05 a box sees its own processes only, no kernel thread among them"
want_out $'cubbyd' probe pids
want_not_out 'cubbyd|bash|\[none\]|lab' in_box b /bin/probe pids
want_not_out 'cubbyd|bash|\[none\]|lab' in_box_user b /bin/probe pids
want_out '^1 cubby-init ' in_box b /bin/probe pids
want_out '^/bin/probe pids cubby-init ?$' sh -c "timeout 10 cubby exec --user root b -- /bin/probe pids |
	sed 's/^[0-9]* //; s/ --.*//; s/ $//' | LC_ALL=C sort -u | tr '\\n' ' '"
cubby exec --detach b -- /bin/probe wait
want_soon 5 sh -c 'cubby exec --user root b -- /bin/probe pids | grep -q "probe wait"'

t "PROC-06 what shows the host's numbers is readable, and the manual says so"
for file in cpuinfo meminfo loadavg uptime stat diskstats; do
	allowed box_probe b open-read "/proc/$file"
done
want_out 'meminfo' grep -o '/proc/cpuinfo.*meminfo.*host.s numbers' "$SRC/SECURITY.md"

t "PROC-07 timers, scheduler, keys, slab, interrupts, traces and debugging say nothing"
for file in timer_list sched_debug keys key-users slabinfo interrupts latency_stats timer_stats pagetypeinfo; do
	lacks b open-read "/proc/$file"
done
for dir in /proc/acpi /proc/scsi /proc/asound /sys/firmware /sys/kernel/debug /sys/kernel/tracing /sys/kernel/security \
	/sys/devices/virtual/powercap; do
	[[ -d $dir ]] || continue
	want_status 0 in_box b test -d "$dir"
	want_not_out . in_box b ls -A "$dir"
done
for cpu in /sys/devices/system/cpu/cpu*/thermal_throttle; do
	[[ -d $cpu ]] || continue
	want_not_out . in_box b ls -A "$cpu"
done
if [[ $LAB_AS == root ]]; then allowed outside open-read /proc/timer_list; else allowed box_probe b open-read /proc/version; fi

t "PROC-07 a mask is the null device, and nobody moves it"
want_out '^(character special file 1,3 *)+$' sh -c 'timeout 10 cubby exec --user root b -- sh -c "for f in /proc/keys /proc/timer_list /proc/kallsyms; do
	[ -e \$f ] && stat -c \"%F %t,%T\" \$f; done" | tr "\n" " "'

t "PROC-07 the host's own null device keeps its times, owner and mode whatever a box does to its"
before=$(stat -c '%i %a %u %X %Y %Z' /dev/null /dev/zero /dev/tty)
for node in /dev/null /dev/zero /dev/tty /proc/keys /proc/timer_list; do
	call box_probe b touch $node
	call box_probe_user b touch $node
	call in_box b chmod 600 $node
	call in_box b chown 1000 $node
done
want "$before" = "$(stat -c '%i %a %u %X %Y %Z' /dev/null /dev/zero /dev/tty)"
want "$(in_box b touch -d @1000000000 /tmp/t </dev/null; in_box b stat -c %Y /tmp/t </dev/null)" = 1000000000

t "PROC-08 of all files in /sys not one opens for writing"
if [[ $LAB_AS != root ]]; then allowed box_probe b any-writable /etc; else allowed outside any-writable /sys/kernel/mm; fi
blocked box_probe b any-writable /sys
blocked box_probe_user b any-writable /sys
blocked box_probe n any-writable /sys

t "PROC-09 no release_agent is in reach, not even in namespaces of a nesting box"
allowed in_box n unshare -Urm /bin/probe mount tmpfs /tmp
for controller in memory cpu pids devices freezer v2; do
	lacks b cgroup-mount "$controller"
	blocked in_box n unshare -Urm /bin/probe cgroup-mount "$controller"
done
want_not_out . in_box b find /sys/fs/cgroup /tmp -name release_agent
want_not_out . in_box b find /sys/fs/cgroup -type f

t "PROC-10 every process of a box is at the root of its cgroups"
want_out ':/' cat /proc/self/cgroup
want_not_out ':/[^[:space:]]' in_box b cat /proc/self/cgroup /proc/1/cgroup
want_not_out ':/[^[:space:]]' in_box_user b cat /proc/self/cgroup /proc/1/cgroup
want_not_out 'cubby' in_box b cat /proc/self/cgroup /proc/self/mountinfo /proc/self/mountstats
want_not_out ':/[^[:space:]]' in_box n unshare -Urm cat /proc/self/cgroup

t "PROC-10 the table of mounts names no directory of the host"
want_out "$LAB" cat /proc/self/mountinfo
for box in b n; do
	want_out ' / / ' in_box $box cat /proc/self/mountinfo
	want_not_out "$LAB|/work|cubby|/state|/templates|/home|/root" sh -c "timeout 10 cubby exec --user root $box -- sh -c \
		'cat /proc/self/mountinfo /proc/1/mountinfo /proc/self/mounts /proc/self/mountstats 2>/dev/null' | sed 's,/work/[0-9],,g'"
done

t "PROC-11 sysctls: none of the host's changes, and none of the box's own without nesting either"
before=$(cat /proc/sys/kernel/{hostname,core_pattern,msgmax,shmmax,pid_max,sem} /proc/sys/net/ipv4/ip_forward /proc/sys/vm/swappiness)
for key in net.ipv4.ip_forward net.ipv4.ip_default_ttl net.ipv6.conf.all.disable_ipv6 net.core.somaxconn \
	net.ipv4.ping_group_range kernel.msgmax kernel.shmmax kernel.sem fs.mqueue.msg_max kernel.hostname kernel.domainname \
	user.max_user_namespaces; do
	lacks b sysctl-write "$key"
done
for key in vm.swappiness kernel.pid_max kernel.panic fs.file-max kernel.core_pattern kernel.ns_last_pid fs.nr_open vm.drop_caches; do
	lacks b sysctl-write "$key"
done
want "$before" = "$(cat /proc/sys/kernel/{hostname,core_pattern,msgmax,shmmax,pid_max,sem} /proc/sys/net/ipv4/ip_forward /proc/sys/vm/swappiness)"

t "PROC-12 nobody writes another process's memory, maps, groups or its own out-of-memory score below what it was given"
allowed box_probe b write-text /proc/self/comm renamed
for what in mem uid_map gid_map setgroups oom_score_adj loginuid attr/current timerslack_ns; do
	blocked box_probe b write-text "/proc/1/$what" -1000
	blocked box_probe_user b write-text "/proc/1/$what" -1000
done
for what in uid_map gid_map; do
	blocked box_probe b write-text "/proc/self/$what" '0 0 1'
	blocked box_probe_user b write-text "/proc/self/$what" '0 0 1'
done
allowed box_probe b oom-adjust 500
blocked box_probe b oom-adjust -1000
blocked box_probe_user b oom-adjust -1000

t "PROC-13 behind the helpers of the host in a box is no object of the host"
links_of() {	# what root of the box sees of everybody but itself
	in_box "$1" /bin/probe links | awk '$3 !~ /^\((EACCES|ENOENT|EPERM)\)$/'
}
want_out '/bin/probe' links_of b
want_not_out '/work|memfd|cubby|deleted' links_of b
want_not_out '/work|memfd|cubby|deleted' links_of n
for box in b n; do
	for pid in $(in_box $box /bin/probe pids </dev/null | awk '/cubby-init/ { print $1 }'); do
		blocked in_box $box /bin/probe list "/proc/$pid/root/"
		blocked in_box $box /bin/probe open-read "/proc/$pid/exe"
		blocked in_box $box /bin/probe open-write "/proc/$pid/exe"
		want_not_out . in_box $box sh -c "readlink /proc/$pid/map_files/* || :"
	done
done
allowed box_probe b open-read /proc/self/exe

t "PROC-13 as the host sees it, the box's init holds sockets, a null device and a sealed memory file, and nothing else"
pid=$(field b .pid)
if [[ $LAB_AS == user ]]; then
	want_err 2 'denied' ls "/proc/$pid/fd"
else
	want_out . ls "/proc/$pid/fd"
	want_not_out '-> ([^/as]|/[^dm]|/dev/[^n]|/m[^e]|a[^n]|s[^o])' sh -c "ls -l /proc/$pid/fd /proc/$pid/exe | grep -e '->'"
fi

t "a command's environment holds the names that the manual has, and no value of the host's"
names() { sed 's/=.*//' | LC_ALL=C sort | tr '\n' ' '; }
want_out '^(COLORTERM |HOME |LANG |LC_[A-Z]+ |LOGNAME |PATH |SHELL |TERM |TZ |USER )+$' sh -c "SECRET_TOKEN=x AWS_KEY=y LD_PRELOAD= \
	timeout 10 cubby exec b -- /bin/probe env | sed 's/=.*//' | LC_ALL=C sort | tr '\n' ' '"
want_not_out "$LAB|$HOME/|/work|xdg" in_box_user b /bin/probe env

t "no descriptor above 2 in a command, whatever its caller holds open"
mkdir -p "$LAB/work/bait"
want_out 'bait' sh -c "exec 7<$LAB/work/bait 9<$LAB/work/bait; exec probe fds"
for how in "--user root" "--user agent" "-T" ; do
	# shellcheck disable=SC2086
	want_out '^(0|0 1|0 1 2) ?$' sh -c "exec 7<$LAB/work/bait 9<$LAB/work/bait; timeout 10 cubby exec $how b -- /bin/probe fds |
		awk '{ print \$1 }' | LC_ALL=C sort | tr '\n' ' '"
done
want_out '^0 1 2 ?$' sh -c "exec 7<$LAB/work/bait; timeout 10 cubby run --template tiny --net none $WEAK -- /bin/probe fds |
	awk '{ print \$1 }' | LC_ALL=C sort | tr '\n' ' '"

t "a crash leaves no core file, and no limit can be raised for one"
call outside core-limit
[[ $STATUS == 0 ]] && allowed outside core-limit
allowed box_probe b create /tmp/writable
blocked box_probe b core-limit
blocked box_probe_user b core-limit
want_out '^core$|^$' sh -c 'cat /proc/sys/kernel/core_pattern | grep -x core || :'
want_status 139 in_box b sh -c 'mkdir -p /tmp/crash; cd /tmp/crash; ulimit -c unlimited; exec /bin/probe end-by 11'
want_not_out . in_box b ls -A /tmp/crash
# A limit of 0 would start a program named in core_pattern; 1 doesn't.
want_out ' 1  *1 ' in_box b sh -c 'ulimit -c 0; grep "core file" /proc/self/limits'
want_out '^100$' in_box b sh -c 'ulimit -n 100; ulimit -n'
