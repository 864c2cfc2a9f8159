#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086,SC2016
# what each verb says and how it ends: exit statuses, builds that are given up, removals that nobody waits for
# modes: root userns
# seconds: 120
. "${TEST_LIB:?}/box.bash"
need_template tiny
weak=
[[ $LAB_AS == root ]] || weak=--allow-weaker
want_status 0 cubby new -q $weak --template tiny box

t "exit statuses: 0 done, 1 failed, 2 asked wrong; of commands 125 cubby failed, 126 can't run, 127 isn't there, 124 timed out"
mkdir -p "$LAB/work/dst"
while IFS='|' read -r want words; do
	[[ -z $want ]] || want_status "$want" cubby $words
done <<-EOT
	0|ls
	0|info box
	0|top --interval 1s --json
	0|logs
	0|logs box
	0|start box
	0|pause box
	0|resume box
	0|limits box
	0|ttl box
	0|config
	0|version
	0|help
	0|template ls
	0|template info tiny
	0|template log tiny
	0|cp box:/bin/sh $LAB/work/dst/
	0|exec box -- true
	1|exec box -- false
	1|info nosuch
	1|start nosuch
	1|stop nosuch
	1|pause nosuch
	1|resume nosuch
	1|rm --force nosuch
	1|rename nosuch other
	1|limits nosuch
	1|ttl nosuch
	1|logs nosuch
	1|cp nosuch:/x $LAB/work/dst/
	1|cp box:/nosuch $LAB/work/dst/
	1|new box --template tiny $weak
	1|new other --template nosuch $weak
	1|template info nosuch
	1|template log nosuch
	1|template cancel nosuch
	1|template rm --force nosuch
	1|template create tiny dir:/nonexistent
	125|exec nosuch -- true
	125|shell nosuch
	125|run --template nosuch $weak -- true
	125|exec --user nosuch box -- true
	125|exec --workdir /nosuch box -- true
	126|exec box -- /etc
	127|exec box -- nosuch
	127|run --template tiny $weak -- nosuch
	124|exec --timeout 100ms box -- sleep 20
	0|
	2|nosuch
	2|ls --nosuch
	2|ls extra
	2|info
	2|info UPPER
	2|start
	2|stop --grace soon box
	2|rename box
	2|limits --memory much box
	2|ttl box soon
	2|logs --lines many
	2|cp one two
	2|new --memory much
	2|exec box
	2|exec --timeout soon box -- true
	2|run
	2|run --memory much -- true
	2|shell
	2|template
	2|template create
	2|template create other dir:/ --time-limit soon
	2|top --interval soon
	2|help nosuch
EOT

t "what is wrong with --user and --workdir is said of the option, with what would do"
want_status 0 cubby exec --user root --workdir /etc box -- true
want_err 125 "--user: the box has no user 'nosuch' .*/etc/passwd.*UID" cubby exec --user nosuch box -- true
want_err 125 "--workdir: .*'/nosuch'" cubby exec --workdir /nosuch box -- true
want_err 125 "--user: the box has no user 'nosuch' .*/etc/passwd.*UID" cubby run --template tiny $weak --user nosuch -- true
want_err 125 "--workdir: .*'/nosuch'" cubby run --template tiny $weak --workdir /nosuch -- true
want_err 1 "--user: template 'tiny' has no user 'nosuch'" cubby new $weak --template tiny --user nosuch nobody
want "$(cubby ls --names | grep -c nobody)" = 0
want_status 0 cubby new $weak --template tiny --user root somebody
want_status 0 cubby rm --force somebody

t "a command that detaches is started, not exited, and says as which process"
call cubby exec --json -d box -- sleep 30
want "$STATUS" = 0
want "$(jq -r .end <<<"$ERR")" = started
want "$(cubby exec box -- cat "/proc/$(jq -r .pid <<<"$ERR")/cmdline" | tr '\0' ' ')" = 'sleep 30 '

t "a renamed box that runs keeps its host name, and that is said"
want_err 0 'keeps its old host name' cubby rename box box2
want_out '^box$' cubby exec box2 -- cat /proc/sys/kernel/hostname
want_status 0 cubby stop --force box2
want_err 0 '^$' cubby rename box2 box
want_out '^box$' cubby exec box -- cat /proc/sys/kernel/hostname

t "what can't be copied is named, the first ones, and counted"
mkdir -p "$LAB/work/pipes"
for ((i = 0; i < 30; i++)); do mkfifo "$LAB/work/pipes/$i"; done
echo file >"$LAB/work/pipes/file"
call cubby cp "$LAB/work/pipes" box:/tmp/
want "$STATUS" = 0
want "$(grep -c 'not copied: pipes/[0-9]*: ' <<<"$ERR")" = 10
want "$(grep -c 'not copied: 20 more' <<<"$ERR")" = 1
want_out '^file$' cubby exec box -- cat /tmp/pipes/file

t "a build goes with the command that waits for it, and stays with --no-wait"
mkdir -p "$LAB/work/many"
(cd "$LAB/work/many" && for ((d = 0; d < 40; d++)); do mkdir $d && (cd $d && seq 500 | xargs touch); done)
building() { [[ $(cubby template info --json "$1" 2>/dev/null | jq -r .state) == "$2" ]]; }
(exec timeout -s INT 20 cubby template create given-up "dir:$LAB/work/many" </dev/null >"$LAB/work/gu.out" 2>"$LAB/work/gu.err") &
pid=$!
for ((i = 0; i < 2000; i++)); do building given-up building && break; done
kill -INT "$pid"
wait "$pid"
want_soon 5 building given-up failed
want "$(grep -c 'the build is cancelled' "$LAB/work/gu.err")" = 1
want_out cancelled cubby template ls
call cubby template create --no-wait --json goes-on "dir:$LAB/work/many"
want "$STATUS:$(jq -r .name <<<"$OUT"):$(jq -r .state <<<"$OUT")" = 0:goes-on:building
want_soon 20 building goes-on ready

t "nobody waits for the removal of a template: it is out of the way, and the builders remove it when they can"
builders() { local d; for d in /proc/[0-9]*; do [[ $(cat "$d/comm" 2>/dev/null) == cubbyd-builder ]] && echo "${d#/proc/}"; done; }
gone() { compgen -G "$CUBBY_STATE_DIR/building/-gone.*" >/dev/null; }
all=$(builders)
want -n "$all"
kill -STOP $all
want_status 0 cubby template rm --force goes-on
want_status 0 cubby ls
want "$(cubby template ls --names | grep -c goes-on)" = 0
want_status 0 gone
want_status 0 cubby template rm --force given-up
kill -CONT $all
want_soon 10 sh -c '! ls -d "$CUBBY_STATE_DIR"/building/-gone.* 2>/dev/null'

t "what was put aside when the daemon was killed is removed by the next one"
want_status 0 cubby template create again "dir:$LAB/work/many/1"
all=$(builders)
kill -STOP $all
want_status 0 cubby template rm --force again
want_status 0 gone
daemon_stop KILL
kill -KILL $all
want_status 0 cubby ls
want_soon 10 sh -c '! ls -d "$CUBBY_STATE_DIR"/building/-gone.* 2>/dev/null'

t "out of memory in a throw-away box is in the log"
if [[ $LAB_AS == root ]]; then
	want_status 137 cubby run --template tiny --memory 24M -- sh -c 'exec tail /dev/zero'
	want_out 'run-[a-z0-9]*  oom  out of memory' cubby logs
else
	skip "the limit needs cgroups"
fi
want_status 0 cubby rm --force box
