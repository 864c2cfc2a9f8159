# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The rows of the network, sourced by bench/run. In the lab: a host "out there" (a network namespace with 203.0.113.10, the servers
# of netload), and the ways to it, side by side: a box, pasta, slirp4netns, and a plain veth pair with masquerading. Each client is
# the same static program.

net_out='' net_plain='' net_slirp='' net_pasta='' net_pids=()

# The peers limit nobody's rate, so neither does the box here.
net_config=('net_lab_public = 203.0.113.0/24' 'connection_rate = 1000000')

net_in() { local pid=$1; shift; nsenter --net="/proc/$pid/ns/net" -- "$@"; }
# The same for what stays: in the background its pid is the program's.
exec_in() { local pid=$1; shift; exec nsenter --net="/proc/$pid/ns/net" -- "$@"; }
net_space() {	# net_space VAR [UNSHARE-OPTION...]: a network namespace of its own, by the pid of who holds it
	local i
	unshare "${@:2}" --net -- sleep 1400 </dev/null >/dev/null 2>&1 &
	printf -v "$1" %s "$!"
	net_pids+=("$!")
	for ((i = 0; i < 200; i++)); do
		[[ $(readlink "/proc/$!/ns/net") != "$(readlink /proc/self/ns/net)" ]] && return 0
		sleep 0.01
	done
	return 1
}

net_up() {
	local i
	((${#net_pids[@]})) && return 0
	net_space net_out && net_space net_plain || return 1
	ip link set lo up
	ip link add up0 type veth peer name out0 netns "$net_out"
	ip addr add 192.0.2.2/24 dev up0 && ip link set up0 up && ip route add default via 192.0.2.1
	net_in "$net_out" ip link set lo up
	net_in "$net_out" ip addr add 192.0.2.1/24 dev out0
	net_in "$net_out" ip addr add 203.0.113.10/32 dev lo
	net_in "$net_out" ip link set out0 up
	exec_in "$net_out" netload serve 203.0.113.10 >"$work/netload.out" </dev/null 2>&1 &
	net_pids+=("$!")
	for ((i = 0; i < 200; i++)); do grep -q ready "$work/netload.out" && break; sleep 0.01; done
	# A resolver out there, that knows one name.
	exec_in "$net_out" /usr/bin/python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.bind(("203.0.113.10", 53))
while True:
    q, peer = s.recvfrom(4096)
    end = 12
    while q[end]:
        end += q[end] + 1
    end += 5
    a = q[end - 4:end - 2] == b"\0\1"
    s.sendto(q[:2] + b"\x81\x80\0\1" + (b"\0\1" if a else b"\0\0") + b"\0\0\0\0" + q[12:end]
             + (b"\xc0\x0c\0\1\0\1\0\0\1\x2c\0\4\xcb\0\x71\x0a" if a else b""), peer)
' </dev/null >/dev/null 2>&1 &
	net_pids+=("$!")
	printf 'nameserver 203.0.113.10\n' >"$work/resolv.conf"
	mount --bind "$work/resolv.conf" /etc/resolv.conf || return 1
	# Plain: a veth pair, forwarding, masquerading.
	ip link add pl0 type veth peer name eth0 netns "$net_plain"
	ip addr add 172.30.0.1/24 dev pl0 && ip link set pl0 up
	net_in "$net_plain" ip link set lo up
	net_in "$net_plain" ip addr add 172.30.0.2/24 dev eth0
	net_in "$net_plain" ip link set eth0 up
	net_in "$net_plain" ip route add default via 172.30.0.1
	echo 1 >/proc/sys/net/ipv4/ip_forward
	nft -f - <<-'END' || return 1
		table ip plain { chain post { type nat hook postrouting priority 100; ip saddr 172.30.0.0/24 oifname "up0" masquerade; }; }
	END
	# slirp4netns and pasta serve user and network namespaces that are there already.
	net_space net_slirp --user --map-root-user && net_space net_pasta --user --map-root-user || return 1
	slirp4netns --configure --mtu=65520 --ready-fd=7 "$net_slirp" tap0 7>"$work/slirp.ready" </dev/null >"$work/slirp.out" 2>&1 &
	net_pids+=("$!")
	for ((i = 0; i < 300; i++)); do [[ -s $work/slirp.ready ]] && break; sleep 0.01; done
	pasta --config-net --foreground --no-map-gw --runas 0 --pid "$work/pasta.pid" "$net_pasta" </dev/null >"$work/pasta.out" 2>&1 &
	net_pids+=("$!")
	for ((i = 0; i < 300; i++)); do nsenter --user --net --target "$net_pasta" ip -4 route | grep -q default && break; sleep 0.01; done
	configure "${net_config[@]}" 'pool_size = 4'
	cubby new --net internet --template tiny bench-net </dev/null >/dev/null
}
net_down() {
	((${#net_pids[@]})) || return 0
	kill "${net_pids[@]}" 2>/dev/null
	wait "${net_pids[@]}" 2>/dev/null
	umount /etc/resolv.conf 2>/dev/null
	nft delete table ip plain 2>/dev/null
	ip link del up0 2>/dev/null
	ip link del pl0 2>/dev/null
	net_pids=()
}

# by WAY COMMAND...: one figure of netload, by one of the ways.
by() {
	local way=$1
	shift
	case $way in
	ours) timeout 60 cubby exec bench-net -- /bin/netload "$@" </dev/null ;;
	plain) timeout 60 nsenter --net="/proc/$net_plain/ns/net" -- netload "$@" </dev/null ;;
	slirp) timeout 60 nsenter --user --net --target "$net_slirp" -- "$(command -v netload)" "$@" </dev/null ;;
	pasta) timeout 60 nsenter --user --net --target "$net_pasta" -- "$(command -v netload)" "$@" </dev/null ;;
	esac 2>"$work/by.err" || sed "s/^/bench: $way: /" "$work/by.err" >&2
}
# rounds N WAYS COMMAND...: each way in turns; the median of each in F_WAY.
rounds() {
	local n=$1 ways=$2 way i
	shift 2
	for way in $ways; do : >"$work/by.$way"; done
	for ((i = 0; i < n; i++)); do
		for way in $ways; do by "$way" "$@" >>"$work/by.$way"; done
	done
	for way in $ways; do
		printf -v "F_$way" %s "$(sort -n "$work/by.$way" | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }')"
	done
}

row_net_throughput() {
	local n
	net_up || { bad=1; return; }
	for n in 1 8; do
		rounds 5 'ours pasta slirp plain' send 203.0.113.10 2 "$n"
		check "TCP, $n stream(s), MB/s, against pasta" "$F_ours" "$F_pasta" 1 higher
		check "TCP, $n stream(s), MB/s, against slirp4netns" "$F_ours" "$F_slirp" 2 higher
		printf '%-46s %12s %12s\n' "TCP, $n stream(s), plain veth (for comparison)" "$F_ours" "$F_plain"
	done
}

row_net_connect() {
	net_up || { bad=1; return; }
	rounds 5 'ours pasta slirp plain' connect 203.0.113.10 2 16
	check 'connections per second, against pasta' "$F_ours" "$F_pasta" 1 higher
	printf '%-46s %12s %12s\n' 'connections per second, plain veth' "$F_ours" "$F_plain"
}

row_net_latency() {
	net_up || { bad=1; return; }
	rounds 7 'ours plain' echo 203.0.113.10 2000
	at_most 'round trip, added to plain veth (us)' "$((F_ours - F_plain))" 60
}

row_net_start() {
	net_up || { bad=1; return; }
	cubby run --net internet --template tiny -- /bin/true </dev/null
	cubby run --net none --template tiny -- /bin/true </dev/null
	configure "${net_config[@]}" 'pool_size = 0'
	time_it turns "$runs" with cubby run --net internet --template tiny -- /bin/true :: without "${ours[@]}"
	at_most 'a box with network starts later by (us)' "$(awk -v a="$(figure with median)" -v b="$(figure without median)" 'BEGIN { print a - b }')" 600
	at_most 'a box with network, failures' "$(figure with failed)" 0
	configure "${net_config[@]}" 'pool_size = 4'
}

# Boxes all at once: each reaches the host out there, resolves a name, and can't reach the box before it.
row_net_crowd() {
	local i n=${crowd:-500} reached=0 others=0 resolved=0 addr
	net_up || { bad=1; return; }
	for ((i = 0; i < n; i++)); do cubby new --quiet --net internet --template tiny "crowd$i" </dev/null >/dev/null || break; done
	mkdir -p "$work/crowd"
	for ((i = 0; i < n; i++)); do
		timeout 60 cubby exec "crowd$i" -- /bin/sh -c 'nslookup -type=a host.example.org >/tmp/dns 2>&1 && grep -q 203.0.113.10 /tmp/dns && echo resolved
			netload reach 203.0.113.10 && echo reached
			nc -l -p 7002 >/dev/null 2>&1 & hostname -i 2>/dev/null; ip -4 -o addr show dev eth0 | sed "s/.*inet \([0-9.]*\).*/addr \1/"' \
			</dev/null >"$work/crowd/$i" 2>&1 &
	done
	wait $(jobs -p | grep -vxF "$(printf '%s\n' "${net_pids[@]}")")
	resolved=$(cat "$work"/crowd/* | grep -cx resolved)
	reached=$(cat "$work"/crowd/* | grep -cx reached)
	at_most "of $n boxes at once, did not reach the host" "$((n - reached))" 0
	at_most "of $n boxes at once, did not resolve a name" "$((n - resolved))" 0
	for ((i = 1; i < n; i += n / 20)); do
		addr=$(sed -n 's/^addr //p' "$work/crowd/$((i - 1))")
		[[ -n $addr ]] && timeout 5 cubby exec "crowd$i" -- /bin/netload reach "$addr" </dev/null >/dev/null 2>&1
		[[ $? == 1 && -n $addr ]] || ((others++))
	done
	at_most 'of 20 boxes, reach their neighbour' "$others" 0
	for ((i = 0; i < n; i++)); do echo "crowd$i"; done | xargs -n 50 cubby rm --force >/dev/null
}

row_net_policy() {
	local i short=203.0.113.10:7003 long
	net_up || { bad=1; return; }
	long=$(for ((i = 0; i < 10000; i++)); do printf 'h%d.example.org,' "$i"; done; echo "$short")
	short=$(for ((i = 0; i < 10; i++)); do printf 'h%d.example.org,' "$i"; done; echo "$short")
	for i in 1 2 3 4 5 6 7; do
		cubby net set bench-net "$short" </dev/null >/dev/null
		by ours connect 203.0.113.10 1 1 >>"$work/policy.short"
		printf '%s' "$long" >"$work/policy.long.text"
		cubby net set bench-net - <"$work/policy.long.text" >/dev/null
		by ours connect 203.0.113.10 1 1 >>"$work/policy.long"
	done
	cubby net set bench-net internet </dev/null >/dev/null
	check 'connections per second, 10,000 names against 10' "$(sort -n "$work/policy.long" | sed -n 4p)" \
		"$(sort -n "$work/policy.short" | sed -n 4p)" 0.95 higher
}

row_net_idle() {
	local n=2000 pid before after
	net_up || { bad=1; return; }
	pid=$(for d in /proc/[0-9]*; do [[ $(cat "$d/comm" 2>/dev/null) == cubby-gateway ]] && echo "${d#/proc/}"; done | head -n 1)
	by ours reach 203.0.113.10
	before=$(awk '/^Private/ { s += $2 } END { print s + 0 }' "/proc/$pid/smaps_rollup")
	mkfifo "$work/idle.hold"
	cubby exec bench-net -- /bin/netload hold 203.0.113.10 "$n" <"$work/idle.hold" >"$work/idle.out" 2>&1 &
	exec 8>"$work/idle.hold"
	for ((i = 0; i < 1000; i++)); do grep -q ready "$work/idle.out" && break; sleep 0.02; done
	after=$(awk '/^Private/ { s += $2 } END { print s + 0 }' "/proc/$pid/smaps_rollup")
	at_most 'connections that did not come' "$(grep -q ready "$work/idle.out"; echo $?)" 0
	exec 8>&-
	wait $!
	at_most 'memory of an idle connection (bytes)' "$(((after - before) * 1024 / n))" 4096
	rm -f "$work/idle.hold"
}
