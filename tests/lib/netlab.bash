# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# A small internet for tests/box/net*.sh, after box.bash (modes root and userns):
#
#	. "${TEST_LIB:?}/box.bash"
#	. "${TEST_LIB:?}/netlab.bash"
#	netlab_up			ends the file with a skip where namespaces can't be had
#
#	lab ("the host")                     inet
#	  up0 192.0.2.2/24, 2001:db8:1::2 ── 192.0.2.1, 2001:db8:1::1: the way out
#	                                     203.0.113.10, .11, 2001:db8::10: servers (see netlab.py for their ports)
#	                                     203.0.113.53: the resolver of the host's /etc/resolv.conf
#	                                     203.0.113.66: an address where packets vanish
#	                                     203.0.113.99: reported as unreachable
#	  lan0 10.77.0.1/24, fd77::1 ─────── lan: 10.77.0.2, fd77::2, and a metadata service at 169.254.169.254
#	  0.0.0.0, :: and loopback: the host's own services, ports 80, 8080, 443, 7, 22, 1001-1004 (netlab_host)
#
# Documentation ranges are no public addresses: CUBBY_CONFIG becomes a copy with net_lab_public for them. No packet leaves the lab: it has no
# other interface.
#
# Names ($NETLAB/zone, read for each query; add lines with netlab_name): www.example.com, api.example.com,
# *.cdn.example.com (203.0.113.11), six.example.com (AAAA only), both.example.com, alias.example.com (CNAME to www), lan.example.com
# (10.77.0.2), meta.example.com (169.254.169.254), self.example.com (192.0.2.2), mixed.example.com (203.0.113.10 and 10.77.0.2).
# The certificate of the TLS servers is for *.example.com, *.cdn.example.com and is signed by $NETLAB/ca.pem.
#
# netlab_template NAME PROGRAM...: a template with such programs (curl, dig); its CA is /etc/ca.pem.
# in_inet CMD, in_lan CMD: run there. netlab_seen ROLE REGEX: did that come to inet, lan or host? netlab_clear: forget what came.

NETLAB=$LAB/work/netlab
NETLAB_PIDS=() NETLAB_INET='' NETLAB_LAN=''

in_inet() { nsenter --net="/proc/$NETLAB_INET/ns/net" -- "$@"; }
in_lan() { nsenter --net="/proc/$NETLAB_LAN/ns/net" -- "$@"; }

# at PID CMD...: in that process' network namespace, as its root.
at() {
	local pid=$1
	shift
	timeout -k 2 60 nsenter --net="/proc/$pid/ns/net" -- "$@"
}
# in_net BOX CMD...: in a box, as its root. fresh BOX OPTIONS...: a new one, of the template that netlab_template made as "net".
in_net() {
	local box=$1
	shift
	timeout -k 2 "$CALL_SECONDS" cubby exec --user root "$box" -- "$@"
}
fresh() {
	local box=$1
	shift
	want_status 0 cubby new --quiet --template net "$@" "$box"
}
# gateway: the pid of cubby-gateway, nothing when there is none.
gateway() {
	local d
	for d in /proc/[0-9]*; do
		[[ $(cat "$d/comm" 2>/dev/null) == cubby-gateway ]] && echo "${d#/proc/}"
	done
	return 0
}

_netlab_serve() {	# _netlab_serve ROLE [COMMAND...]: start the servers, in front of them COMMAND
	local role=$1 i
	shift
	rm -f "$NETLAB/$role.ready"
	: >>"$NETLAB/$role.seen"
	"$@" /usr/bin/python3 "$TEST_LIB/netlab.py" "$NETLAB" "$role" <"$NETLAB/life" >"$NETLAB/$role.log" 2>&1 9>&- &
	NETLAB_PIDS+=($!)
	for ((i = 0; i < 500; i++)); do
		[[ -e $NETLAB/$role.ready ]] && return 0
		sleep 0.01
	done
	note "the servers of $role don't start: $(tail -n 3 "$NETLAB/$role.log")"
	return 1
}

_netlab_make() {
	set -e
	ip link set lo up
	ip link add up0 type veth peer name out0 netns "$NETLAB_INET"
	ip link add lan0 type veth peer name in0 netns "$NETLAB_LAN"
	# Addresses at once, without looking for doubles first.
	sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.up0.accept_dad=0 \
		net.ipv6.conf.lan0.accept_dad=0 2>/dev/null || :
	ip addr add 192.0.2.2/24 dev up0
	ip -6 addr add 2001:db8:1::2/64 dev up0 nodad
	ip addr add 10.77.0.1/24 dev lan0
	ip -6 addr add fd77::1/64 dev lan0 nodad
	ip link set up0 up
	ip link set lan0 up
	ip route add default via 192.0.2.1
	ip -6 route add default via 2001:db8:1::1
	ip route add 169.254.169.254/32 dev lan0
	in_inet ip link set lo up
	in_inet ip addr add 192.0.2.1/24 dev out0
	in_inet ip -6 addr add 2001:db8:1::1/64 dev out0 nodad
	in_inet ip link set out0 up
	for a in 10 11 53; do in_inet ip addr add "203.0.113.$a/32" dev lo; done
	in_inet ip -6 addr add 2001:db8::10/128 dev lo nodad
	in_inet ip route add blackhole 203.0.113.66
	in_inet ip route add unreachable 203.0.113.99
	in_inet sysctl -qw net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0
	in_lan ip link set lo up
	in_lan ip addr add 10.77.0.2/24 dev in0
	in_lan ip -6 addr add fd77::2/64 dev in0 nodad
	in_lan ip addr add 169.254.169.254/32 dev in0
	in_lan ip link set in0 up
}

_netlab_certs() {	# a CA, and a certificate of it for the servers
	set -e
	local ext=$NETLAB/ext
	printf 'subjectAltName=DNS:*.example.com,DNS:example.com,DNS:*.cdn.example.com\n' >"$ext"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj '/CN=netlab CA' -keyout "$NETLAB/ca.key" \
		-out "$NETLAB/ca.pem"
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj '/CN=example.com' -keyout "$NETLAB/server.key" \
		-out "$NETLAB/server.csr"
	openssl x509 -req -in "$NETLAB/server.csr" -CA "$NETLAB/ca.pem" -CAkey "$NETLAB/ca.key" -days 2 -extfile "$ext" \
		-out "$NETLAB/server.crt"
	cat "$NETLAB/server.crt" "$NETLAB/server.key" >"$NETLAB/server.pem"
}

netlab_name() { printf '%s\n' "$*" >>"$NETLAB/zone"; }

netlab_zone() {
	cat >"$NETLAB/zone" <<-END
		www.example.com A 300 203.0.113.10
		api.example.com A 300 203.0.113.11
		example.com A 300 203.0.113.10
		*.cdn.example.com A 300 203.0.113.11
		six.example.com AAAA 300 2001:db8::10
		both.example.com A 300 203.0.113.10
		both.example.com AAAA 300 2001:db8::10
		alias.example.com CNAME 300 www.example.com
		lan.example.com A 300 10.77.0.2
		meta.example.com A 300 169.254.169.254
		self.example.com A 300 192.0.2.2
		loop.example.com A 300 127.0.0.1
		mixed.example.com A 300 203.0.113.10
		mixed.example.com A 300 10.77.0.2
		slow.example.com HOLD
		broken.example.com FAIL
		text.example.com TXT 300 some text
	END
}

netlab_up() {
	local tool
	for tool in ip openssl nsenter unshare /usr/bin/python3; do
		command -v "$tool" >/dev/null || skip_file "the network tests need $tool"
	done
	mkdir -p "$NETLAB"
	mkfifo "$NETLAB/life"
	exec 9<>"$NETLAB/life"	# the servers end when nobody holds it any more
	unshare --net -- sleep 1000 9>&- &
	NETLAB_INET=$!
	unshare --net -- sleep 1000 9>&- &
	NETLAB_LAN=$!
	NETLAB_PIDS=("$NETLAB_INET" "$NETLAB_LAN")
	trap _netlab_exit EXIT
	for tool in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do	# until both have left this namespace
		[[ $(readlink "/proc/$NETLAB_INET/ns/net") != "$(readlink /proc/self/ns/net)" &&
			$(readlink "/proc/$NETLAB_LAN/ns/net") != "$(readlink /proc/self/ns/net)" ]] && break
		sleep 0.02
	done
	netlab_zone
	if ! (_netlab_make) >"$NETLAB/log" 2>&1 || ! (_netlab_certs) >>"$NETLAB/log" 2>&1; then
		skip_file "no network of namespaces can be made here: $(tail -n 1 "$NETLAB/log")"
	fi
	printf 'nameserver 203.0.113.53\n' >"$NETLAB/resolv.conf"
	mount --bind "$NETLAB/resolv.conf" /etc/resolv.conf || skip_file "/etc/resolv.conf can't be replaced here"
	# Where it can be written in every mode.
	[[ -e $CUBBY_CONFIG ]] && cp "$CUBBY_CONFIG" "$NETLAB/cubby.conf"
	export CUBBY_CONFIG=$NETLAB/cubby.conf
	printf 'net_lab_public = 203.0.113.0/24,198.51.100.0/24,2001:db8::/32\n' >>"$CUBBY_CONFIG"
	_netlab_serve inet nsenter --net="/proc/$NETLAB_INET/ns/net" -- || skip_file "the servers don't start"
	_netlab_serve lan nsenter --net="/proc/$NETLAB_LAN/ns/net" -- || skip_file "the servers don't start"
}

# netlab_host: the host's own services.
netlab_host() { _netlab_serve host; }

netlab_seen() { grep -Eq -- "$2" "$NETLAB/$1.seen"; }
netlab_clear() { for f in "$NETLAB"/*.seen; do : >"$f"; done; }

# netlab_template NAME PROGRAM...: the tiny root file system with programs of this machine and the libraries they are linked with.
netlab_template() {
	local name=$1 dir=$LAB/work/root-$1 program path lib
	shift
	tiny_root || skip_file "bench/tiny-root failed"
	cp -a "$TINY" "$dir"
	for program in "$@"; do
		path=$(command -v "$program") || continue
		rm -f "$dir/usr/bin/$program" "$dir/bin/$program"
		cp -L "$path" "$dir/usr/bin/$program"
		for lib in $(ldd "$path" 2>/dev/null | grep -o '/[^ ]*'); do
			mkdir -p "$dir${lib%/*}"
			[[ -e $dir$lib ]] || cp -L "$lib" "$dir$lib"
		done
	done
	printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$dir/etc/nsswitch.conf"
	cp "$NETLAB/ca.pem" "$dir/etc/ca.pem"
	chown -R 0:0 "$dir" 2>/dev/null
	call cubby template create "$name" "dir:$dir"
	[[ $STATUS == 0 ]] || skip_file "template $name: $ERR"
}

netlab_down() {
	exec 9>&-
	((${#NETLAB_PIDS[@]})) && kill "${NETLAB_PIDS[@]}" 2>/dev/null
	wait "${NETLAB_PIDS[@]}" 2>/dev/null
	umount /etc/resolv.conf 2>/dev/null
	ip link del up0 2>/dev/null
	ip link del lan0 2>/dev/null
	return 0
}

_netlab_exit() {
	local status=$?
	_close_case
	box_end
	netlab_down
	exit "$status"
}
