#!/bin/bash
# boxes with a network: what they reach, what they don't, and what is said about it
# modes: root userns
# seconds: 180
# shellcheck disable=SC2086,SC2016 # $GET is words
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/netlab.bash"
netlab_up
netlab_host
[[ $LAB_AS == root ]] && printf 'grants = ann, bob\n' >>"$CUBBY_CONFIG"

t "the lab itself: the host reaches its internet, its LAN and itself"
want_out '^hello from inet www.example.com /x$' curl -sS --max-time 5 http://www.example.com/x
want_out '^hello from inet www.example.com /' curl -sS --max-time 5 --cacert "$NETLAB/ca.pem" https://www.example.com/
want_out '^hello from inet ' curl -sS --max-time 5 'http://[2001:db8::10]/'
want_out '^hello from inet ' curl -sS --max-time 5 http://six.example.com/
want_out '^hello from lan ' curl -sS --max-time 5 http://10.77.0.2/
want_out '^hello from lan ' curl -sS --max-time 5 http://169.254.169.254/
want_out '^hello from host ' curl -sS --max-time 5 http://127.0.0.1:8080/
want_out '^hello from host ' curl -sS --max-time 5 http://192.0.2.2:8080/
want_status 7 curl -sS --max-time 5 http://203.0.113.10:9/
want_status 28 curl -sS --max-time 1 http://203.0.113.66/
want_out '203.0.113.10' dig +short +tcp +time=2 +tries=1 www.example.com

netlab_template net curl dig
run() { timeout -k 2 "$CALL_SECONDS" cubby run --template net "$@"; }	# run OPTIONS -- CMD
wait_for() { wait "$1"; }
# shellcheck disable=SC2086,SC2016 # $GET is words
GET='curl -sS --max-time 5 --cacert /etc/ca.pem'

t "the very first command has its network: cubby run right after the daemon's start"
want_out '^hello from inet www.example.com /first$' run --net internet -- $GET http://www.example.com/first
want_out '^hello from inet www.example.com /second$' run --net internet -- $GET http://www.example.com/second
want_out '^hello from inet www.example.com /third$' run -- $GET http://www.example.com/third

t "the internet is reached by name and address, in both families, over TLS, through aliases"
fresh b
want_out '^hello from inet www.example.com /' in_net b $GET https://www.example.com/
want_out '^hello from inet alias.example.com /' in_net b $GET https://alias.example.com/
want_out '^hello from inet 203.0.113.11 /' in_net b $GET http://203.0.113.11/
want_out '^hello from inet six.example.com /' in_net b $GET http://six.example.com/
want_out '^hello from inet ' in_net b $GET -g 'http://[2001:db8::10]/'
want_out '^203.0.113.10$' in_net b dig +short +time=3 +tries=1 www.example.com
want_out '^203.0.113.10$' in_net b dig +short +tcp +time=3 +tries=1 www.example.com
want_out '203.0.113.10' in_net b dig +short +time=3 +tries=1 @203.0.113.200 www.example.com
want_out '^1048576$' in_net b sh -c "$GET http://www.example.com/bytes/1048576 | wc -c"

t "what is refused, unreachable or silent outside is so in the box"
want_status 7 in_net b $GET http://203.0.113.10:9/
want_status 28 in_net b curl -sS --max-time 2 http://203.0.113.66/
want_status 7 in_net b $GET http://203.0.113.99/
want_status 6 in_net b $GET http://nowhere.example.com/

t "neither the host nor its LAN nor the metadata service is reached, by address or by name"
netlab_clear
for to in 10.77.0.2 169.254.169.254 192.0.2.2:8080 10.77.0.1:8080 '[fd77::2]' '[fd77::1]:8080' '[2001:db8:1::2]:8080' 198.18.0.1:8080 \
	0.0.0.0:8080 '[::ffff:10.77.0.2]' lan.example.com meta.example.com self.example.com:8080; do
	want_out '^hello from ' curl -sS --max-time 5 -g "http://${to/198.18.0.1/127.0.0.1}/"
	netlab_clear
	call in_net b curl -sS --max-time 3 -g "http://$to/"
	want "$STATUS" != 0
	want "$STATUS" != 28	# at once, never a silence
	if netlab_seen lan 'tcp|http' || netlab_seen host 'tcp|http'; then fail "$to was reached"; fi
done
want_out '^hello from inet mixed.example.com' in_net b $GET http://mixed.example.com/

t "an address of the host that stands in another table of routes (as a VRF's do) is the host's, a transparent proxy's route is not"
netlab_clear
want_out '^allowed' cubby net why b 203.0.113.77
ip route add local 203.0.113.77 dev lo table 100
ip -6 route add local 2001:db8::77 dev lo table 100
ip -6 rule add to 2001:db8::77 lookup 100
want_out '^hello from host ' curl -sS --max-time 5 -g 'http://[2001:db8::77]:8080/'
netlab_clear
call in_net b curl -sS --max-time 3 -g 'http://[2001:db8::77]:8080/'
want "$STATUS" != 0
want "$STATUS" != 28
if netlab_seen host 'tcp|http'; then fail "2001:db8::77 was reached"; fi
want_out '^refused' cubby net why b 203.0.113.77
ip -6 rule del to 2001:db8::77 lookup 100
ip route flush table 100
ip -6 route flush table 100
want_out '^allowed' cubby net why b 203.0.113.77
ip route add local default dev lo table 101
ip -6 route add local default dev lo table 101
want_out '^hello from inet 203.0.113.11 /' in_net b $GET http://203.0.113.11/
want_out '^hello from inet ' in_net b $GET -g 'http://[2001:db8::10]/'
ip route flush table 101
ip -6 route flush table 101
if ip link add vrf7 type vrf table 107 2>/dev/null; then
	ip link add vrf7a type dummy
	ip link set vrf7a master vrf7
	ip link set vrf7 up
	ip link set vrf7a up
	ip addr add 203.0.113.78/32 dev vrf7a
	want_out '^refused' cubby net why b 203.0.113.78
	ip link del vrf7a
	ip link del vrf7
else
	note "this kernel has no VRF: not tried with one"
fi

t "another box isn't reached"
fresh c
in_net c nc -ll -p 9999 -e /bin/echo reached >/dev/null 2>&1 &
want_soon 5 in_net c sh -c 'nc -w 2 127.0.0.1 9999 </dev/null | grep reached'
for addr in $(cubby info --json c | jq -r '.address[]'); do
	want_out 'reached' in_net c nc -w 2 "$addr" 9999
	call in_net b nc -w 2 "$addr" 9999
	want "$STATUS" != 0
done
want_status 0 cubby rm --force c

t "a box with the network 'none' has no interface"
want_out '^lo$' run --net none -- ls /sys/class/net
want_out 'eth0' run --net internet -- ls /sys/class/net
want_out '^none$' cubby run --json --net none --template net -- sh -c 'echo none'

t "a policy that can't be read is refused whole, and says where"
want_err 1 "example..org" cubby new --template net --net internet,example..org bad
want_err 1 '70000' cubby new --template net --net example.org:70000 bad
want_err 1 "@nosuch" cubby new --template net --net @nosuch bad
want_err 1 "lan" cubby new --template net --lan 127.0.0.1 bad
want_err 1 "there is no box 'bad'" cubby info bad

t "with a list, names are what is reached: others are refused at once, by name and by address"
fresh n --net 'www.example.com,*.cdn.example.com:80'
want_out '^hello from inet www.example.com' in_net n $GET https://www.example.com/
want_out '^hello from inet a.cdn.example.com' in_net n $GET http://a.cdn.example.com/
want_status 7 in_net n $GET https://a.cdn.example.com/
want_status 6 in_net n $GET http://api.example.com/
want_status 7 in_net n $GET http://203.0.113.11:8080/
call in_net n $GET -H 'Host: api.example.com' http://www.example.com/	# another name over the allowed connection
want "$STATUS" != 0
want_out '^refused' cubby net why n api.example.com
want_out '^allowed by www.example.com' cubby net why n www.example.com:443
want_out '^refused' cubby net why n 10.77.0.2

t "a policy is changed while the box runs, and at once: also to none and back"
want_out 'api.example.com' cubby net set n www.example.com api.example.com
want_out '^hello from inet api.example.com' in_net n $GET http://api.example.com/
want_out '^none$' cubby net set n none
want_out '^lo$' in_net n ls /sys/class/net
call in_net n $GET http://api.example.com/
want "$STATUS" != 0
want_out '^internet$' cubby net set n internet
want_out '^hello from inet api.example.com' in_net n $GET http://api.example.com/

t "a long list comes by standard input: comments, and more than fits on a command line"
{ echo '# ours'; for ((i = 0; i < 10000; i++)); do echo "host-$i.long-list.example.org"; done; echo 'www.example.com # the one'; } >"$LAB/work/list"
want_status 0 sh -c "cubby net set --quiet n - <$LAB/work/list"
want_out '^allowed by www.example.com' cubby net why n www.example.com:80
want_out '^allowed by host-9999.*, but it does not resolve' cubby net why n host-9999.long-list.example.org
want_out '^refused' cubby net why n api.example.com
want_err 1 'character 6' sh -c 'printf "#x\n\n,..\n" | cubby net set n -'
want_out '^allowed by www.example.com' cubby net why n www.example.com:80
want_out '^internet$' cubby net set n internet

want_out '^refused: .*host-port=PORT' cubby net why n host.cubby.internal:81
want_err 1 'lower case' cubby net set n Internet
want_err 1 "a preset can't have" cubby net set n @npm:443

t "a connection that lost its permission is cut"
in_net n sh -c 'mkfifo /tmp/f; nc 203.0.113.10 7 <>/tmp/f; echo over >/tmp/over' >/dev/null 2>&1 &
want_soon 5 netlab_seen inet 'tcp 203.0.113.10 7 '
want_out 'api' cubby net set n api.example.com
want_soon 5 in_net n test -e /tmp/over
in_net n true
want_out 'internet' cubby net set n internet
in_net n sh -c 'mkfifo /tmp/g; nc 203.0.113.10 7 <>/tmp/g; echo over >/tmp/over2' >/dev/null 2>&1 &
want_soon 5 sh -c "cubby net show --json n | jq -e '.conns | length > 0'"
want_out '^none$' cubby net set n none
want_soon 5 sh -c "cubby net log n | grep -q 'the network was taken from the box'"
want_status 0 cubby rm --force n

t "--lan and --host-port open just what they name"
fresh l --net none --lan 10.77.0.2:80 --host-port 8080
want_out '^hello from lan' in_net l $GET http://10.77.0.2/
want_status 7 in_net l $GET http://10.77.0.2:8080/
want_status 7 in_net l $GET http://203.0.113.10/
want_out '^hello from host' in_net l $GET http://host.cubby.internal:8080/
want_status 7 in_net l $GET http://host.cubby.internal:80/
want_out '^allowed by host-port=8080$' cubby net why l host.cubby.internal:8080
want_out '^refused: .*host-port=PORT' cubby net why l host.cubby.internal:80
want_out "^allowed: it is the box's own loopback" cubby net why l localhost:80
want_status 0 cubby rm --force l

t "the log tells what was reached and what wasn't, to the box's owner, in safe characters"
fresh g --net www.example.com
want_out '^hello' in_net g $GET http://www.example.com/
call in_net g $GET http://203.0.113.11/
want_soon 5 sh -c "cubby net log g | grep -q 'allowed.*www.example.com.*port 80'"
want_out 'refused.*203.0.113.11.*port 80' cubby net log g	# also right after it
want_out '"verdict":"allowed"' cubby net log --json g
want_out '^www.example.com:80$' sh -c "cubby net learn g 2>/dev/null | grep -v '^#'"
call in_net g sh -c 'mkfifo /tmp/f; timeout 1 nc 203.0.113.10 7 <>/tmp/f'	# one that is there long enough to be looked at
want_soon 5 sh -c "cubby net log --json g | jq -e 'map(select(.process | test(\"^nc[(][0-9]+[)]$\"))) | length > 0'"
want_status 6 in_net g $GET http://api.example.com/
want_out '^# refused so far: api.example.com$' sh -c "cubby net learn g 2>/dev/null | grep api"
want_status 0 cubby rm --force g
want_out '203.0.113.11' cubby net log g	# one that is gone is known by its name, too
want_err 1 "there is no box 'never-was'" cubby net log never-was
fresh r --net www.example.com
want_status 7 in_net r $GET http://203.0.113.11/
want_err 0 'nothing to propose' cubby net learn r
want_err 1 "has no 'ask'" cubby net ask --json r
want_status 0 cubby rm --force r

t "a port of a box is shown on the host's loopback, and only there"
in_net b sh -c 'while true; do echo "HTTP/1.0 200 OK

from b" | nc -l -p 3000 >/dev/null; done' >/dev/null 2>&1 &
want_soon 5 in_net b sh -c 'cat /proc/net/tcp /proc/net/tcp6 | grep -q :0BB8'
want_out '3000 +127.0.0.1:13000' cubby expose b 3000:13000
want_out 'from b' curl -sS --max-time 5 http://127.0.0.1:13000/
want_status 7 curl -sS --max-time 5 http://192.0.2.2:13000/
want_err 1 'is free' cubby expose b 80:8080
want_err 1 'at port 13000 of the host, not at 13999' cubby expose --off b 3000:13999
want_out '3000 +127.0.0.1:13000' cubby expose b
want_status 0 cubby stop --force b
want_status 7 curl -sS --max-time 5 http://127.0.0.1:13000/
want_status 0 cubby start b
in_net b sh -c 'while true; do echo "HTTP/1.0 200 OK

from b" | nc -l -p 3000 >/dev/null; done' >/dev/null 2>&1 &
want_soon 5 in_net b sh -c 'cat /proc/net/tcp /proc/net/tcp6 | grep -q :0BB8'
want_out 'from b' curl -sS --max-time 5 http://127.0.0.1:13000/

t "limits of the network are shown and changed while the box runs"
want_out 'connections +4096' cubby limits b
want_out 'connections +2' cubby limits b --connections 2
want_out '"connections":2' cubby info --json b
want_out 'bandwidth +1 MiB' cubby limits b --connections 0 --bandwidth 1M

t "a new resolver of the host is the boxes' resolver at once"
want_out '203.0.113.11' in_net b dig +short +time=2 +tries=1 one.cdn.example.com
printf 'nameserver 203.0.113.99\n' >"$NETLAB/resolv.conf"
want_soon 5 sh -c '! cubby exec b -- dig +time=1 +tries=1 "$(date +%N).cdn.example.com" | grep -q 203.0.113.11'
printf 'nameserver 203.0.113.53\n' >"$NETLAB/resolv.conf"
want_soon 5 sh -c 'cubby exec b -- dig +time=1 +tries=1 "$(date +%N).cdn.example.com" | grep -q 203.0.113.11'

t "downloads that are broken off hurt nobody else"
before=$(gateway)
want -n "$before"
for ((i = 0; i < 15; i++)); do
	call in_net b curl -sS --http0.9 -o /dev/null --max-time 0.3 http://203.0.113.11:1004/
	want "$STATUS" != 0 # timed out, in most cases
done
want "$(gateway)" = "$before"
want_out '^hello from inet' in_net b $GET http://www.example.com/

t "a port that was taken meanwhile is told where boxes are listed"
want_status 0 cubby stop --force b
python3 -m http.server --bind 127.0.0.1 13000 >/dev/null 2>&1 8>&- 9>&- &
taker=$!
want_soon 5 sh -c "curl -sS http://127.0.0.1:13000/ >/dev/null"
want_status 0 cubby start b
want_out 'port 3000 at port 13000 of the host: not listening' cubby ls
want_out 'exposed port +port 3000 at port 13000' cubby info b
kill "$taker"
wait "$taker"
want_status 0 cubby stop --force b
want_status 0 cubby start b
want_not_out 'not listening' cubby ls
in_net b sh -c 'while true; do echo "HTTP/1.0 200 OK

from b" | nc -l -p 3000 >/dev/null; done' >/dev/null 2>&1 &
want_soon 5 in_net b sh -c 'cat /proc/net/tcp /proc/net/tcp6 | grep -q :0BB8'

t "the gateway's end is a moment without network, never an open one"
before=$(gateway)
want -n "$before"
want_status 0 kill -9 "$before"
# A query that nobody heard is asked again after 5 s (resolv.conf(5)): here by the next try.
want_soon 8 in_net b curl -sS --max-time 1 http://www.example.com/
want "$(gateway)" != "$before"
want_soon 5 sh -c "cubby logs --json | grep -q 'ended by signal 9'"
want_soon 5 sh -c "curl -sS --max-time 5 http://127.0.0.1:13000/ | grep -q 'from b'"

t "after the daemon's death a running box gets its network back with the next command"
want_status 0 daemon_stop KILL
want_soon 8 in_net b curl -sS --max-time 1 http://www.example.com/
want_out 'running' field b .state
want_soon 5 sh -c "curl -sS --max-time 5 http://127.0.0.1:13000/ | grep -q 'from b'"
want_out '"address":\["198.18' cubby info --json b

t "what no item of the policy names is held for a person, and their answer is kept"
fresh a --net ask
mkfifo "$LAB/work/answers"
exec 8<>"$LAB/work/answers"
cubby net ask --json a <"$LAB/work/answers" >"$LAB/work/asked" 2>"$LAB/work/asked.err" 8>&- 9>&- &
asker=$!
in_net a $GET http://www.example.com/ >"$LAB/work/held" 2>&1 &
held=$!
want_soon 5 grep -q www.example.com "$LAB/work/asked"
printf 'what\n999 y\n' >&8
want_soon 5 grep -q "'what' is not an answer" "$LAB/work/asked.err"
want_soon 5 grep -q "question 999 isn't held" "$LAB/work/asked.err"
printf '%s always\n' "$(jq -s '.[0].ask' "$LAB/work/asked")" >&8
want_status 0 wait_for "$held"
want_out '^hello from inet www.example.com' cat "$LAB/work/held"
want_out 'www.example.com' cubby net show --json a
want_out '^hello from inet www.example.com' in_net a $GET http://www.example.com/
kill "$asker"
exec 8>&-
want_status 0 timeout 5 cubby net ask --json a
# On a terminal, what is no answer is asked for again.
in_net a $GET http://api.example.com/ >"$LAB/work/held" 2>&1 &
held=$!
{ sleep 2; printf 'hm\n'; sleep 0.5; printf '\n'; sleep 0.5; printf 'y\n'; sleep 1; } |
	timeout 20 script -qec 'exec timeout --foreground 8 cubby net ask a' /dev/null >"$LAB/work/terminal" 2>&1
want_status 0 wait_for "$held"
want_out '^hello from inet api.example.com' cat "$LAB/work/held"
want_out 'please answer y' cat "$LAB/work/terminal"
want_out 'allowed for 5 minutes' cat "$LAB/work/terminal"
# A refusal holds for a while, or as long as the box runs.
for answer in n never; do
	to=$answer.cdn.example.com
	in_net a $GET "http://$to/" >/dev/null 2>&1 &
	held=$!
	mkfifo "$LAB/work/in.$answer"
	exec 8<>"$LAB/work/in.$answer"
	cubby net ask --json a <"$LAB/work/in.$answer" >"$LAB/work/asked.$answer" 2>&1 8>&- 9>&- &
	asker=$!
	want_soon 5 grep -q "$to" "$LAB/work/asked.$answer"
	printf '%s %s\n' "$(jq -s '.[0].ask' "$LAB/work/asked.$answer")" "$answer" >&8
	wait "$held"
	kill "$asker"
	exec 8>&-
	[[ $answer == n ]] && want_out '^refused by asked: refused by a person, for another [0-9]+ s$' cubby net why a "$to"
done
want_out '^refused by asked: refused by a person, until the box stops$' cubby net why a never.cdn.example.com
want_status 0 cubby rm --force a

t "doctor and info tell how the network is made"
want_out 'The gateway: ' cubby doctor --json
want_out '"id":"gateway-ping"' cubby doctor --json
want_out '"net":"internet"' cubby info --json b
want_out 'also public +203.0.113.0/24' cubby info b

t "a user sees the lines of their own boxes, also of those that are gone, and shows ports from 1024 on"
if [[ $LAB_AS == root ]]; then
	sys() {	# sys USER ARGS...: cubby at the system's daemon
		local who=$1
		shift
		as "$who" env CUBBY_RUN_DIR="$CUBBY_RUN_DIR" cubby "$@"
	}
	want_status 0 sys ann new --quiet --template net anns
	want_out '^hello from inet' sys ann exec anns -- $GET http://www.example.com/of-ann
	want_soon 5 sh -c "setpriv --reuid=20001 --regid=20001 --clear-groups env CUBBY_RUN_DIR='$CUBBY_RUN_DIR' cubby net log | grep -q anns"
	want_not_out anns sys bob net log --json
	want_not_out anns cubby net log --json
	want_out anns cubby net log --json --all
	want_err 1 'is for root' sys ann expose anns 80
	want_err 1 "there is no box 'anns'" sys bob net set anns none
	want_err 1 "there is no box 'anns'" sys bob expose anns 3000
	want_out '127.0.0.1:13001' sys ann expose anns 3000:13001
	id=$(sys ann info --json anns | jq -r .id)
	want_status 0 sys ann rm --force anns
	want_out '"name":"anns"' sys ann net log --json "$id"
	want_err 1 'there is no box' sys bob net log --json "$id"
else
	want_out '^hello from inet' in_net b $GET http://www.example.com/
fi

t "a box that stops leaves no connection, port or line behind that grows"
want_status 0 cubby stop --force b
want_status 7 curl -sS --max-time 5 http://127.0.0.1:13000/
want_out '^\[\]$' sh -c "cubby net show --json b | jq -c '.conns // []'"

t "who ends the daemon is told what that means for running boxes"
want_status 0 cubby start b
want_err 0 '1 running box is without network until the next cubby command' cubby config --stop-daemon
want_status 0 cubby stop --force b

t "a proxy that can't be read is refused with its line; its password is shown to nobody"
want_status 0 cubby config --stop-daemon
cp "$CUBBY_CONFIG" "$LAB/work/conf"
printf 'proxy = http://me:sesame@proxy.example.com:3128\n' >>"$CUBBY_CONFIG"
call cubby ls
want "$STATUS" != 0
want_err "$STATUS" 'http://me:…@proxy.example.com:3128.*by its address' cubby ls
cp "$LAB/work/conf" "$CUBBY_CONFIG"
printf 'proxy = http://me:sesame@203.0.113.9:3128\n' >>"$CUBBY_CONFIG"
want_out 'http://me:…@203.0.113.9:3128' cubby config
want_not_out sesame cubby config --json
want_status 0 cubby config --stop-daemon
cp "$LAB/work/conf" "$CUBBY_CONFIG"
want_status 0 env HTTPS_PROXY=me:sesame@garbage cubby start b
want_out "HTTPS_PROXY is 'me:…@garbage', and no connection" cubby doctor --json
want_not_out sesame cubby doctor --json
want_status 0 cubby stop --force b

t "a file of named lists that can't be read is named"
want_status 0 cubby config --stop-daemon
lists=$(dirname "$CUBBY_CONFIG")/presets.conf
printf '   nothing.example.com\n' >"$lists"
call cubby ls
want_err "$STATUS" "named lists in '$lists'.*line 1" cubby ls
rm "$lists"
want_status 0 cubby ls
