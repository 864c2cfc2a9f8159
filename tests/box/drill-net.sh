#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Names of the library:
# shellcheck disable=SC2154,SC2034
# the drill's claims about the network, among hosts of a small internet: what is refused never leaves the host
# modes: root userns
# seconds: 150
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/isolation.bash"
. "${TEST_LIB:?}/netlab.bash"
netlab_up
netlab_host
need_template tiny
CALL_SECONDS=90
claims='net-loopback net-host net-private net-special net-peer net-names net-identity'
verdict() { jq -r --arg id "$1" '.rows[]|select(.id==$id).verdict' <<<"$2"; }

t "each claim about the network is proven for a box with one, next to what it may reach"
want_status 0 cubby new --quiet --template tiny --net internet b
netlab_clear
call cubby drill --json --net-target www.example.com:80 b
json=$OUT
want "$(jq -r .net <<<"$json")" = internet
for id in $claims net-out; do want "$id $(verdict $id "$json")" = "$id proven"; done
want "$(jq -r .open <<<"$json")" = 0
want "$(verdict net-none "$json")" = ''
# The host's own listeners were found from the host.
want "$(jq -r '.rows[]|select(.id=="net-host").control' <<<"$json" | grep -cE 'through: (192.0.2.2|10.77.0.1|2001:db8:1::2|fd77::1) port')" = 1

t "nothing of it came to another machine but what was named"
want_out 'tcp 203.0.113.10 80 ' cat "$NETLAB/inet.seen"
want "$(grep -cvE '^(tcp 203.0.113.10 80 |dns www.example.com )' "$NETLAB/inet.seen")" = 0
want "$(wc -l <"$NETLAB/lan.seen")" = 0

t "a target that isn't reached is not proven, and one that makes no sense is told"
call cubby drill --json --net-target www.example.com:81 b
want "$(verdict net-out "$OUT")" = not-proven
want "$STATUS" = 3
for bad in nonsense :80 host: host:0 host:70000 'ho st:80' '[::1:80'; do want_err 2 'net-target' cubby drill --net-target "$bad" b; done

t "the refusal of addresses, and a network stack of its own, are missed when they are gone"
call cubby drill --json --self-test b
for word in addresses net; do
	want "$word $(jq -r --arg w $word '.self_test[]|select(.without==[$w]).state' <<<"$OUT")" = "$word noticed"
done
want "$(jq -r .missed <<<"$OUT")" = 0

t "without a network there is none, and its result is another one"
call cubby drill --json --net none --template tiny
want "$(verdict net-none "$OUT")" = proven
want "$(verdict net-loopback "$OUT")" = proven
want "$(verdict net-host "$OUT")" = ''
want "$(field b .drill.net)" = internet
want "$(find "$CUBBY_STATE_DIR/drill" -type f | wc -l)" = 2

t "a list as policy, with private addresses as an exception: said, and no more is open than that"
want_status 0 cubby new --quiet --template tiny --net 'api.example.com,lan=10.77.0.0/24' l
call cubby drill --json l
want "$(jq -r .open <<<"$OUT")" = 0
want "$(verdict net-private "$OUT")" = ''
for id in net-host net-special net-peer net-names; do want "$id $(verdict $id "$OUT")" = "$id proven"; done
