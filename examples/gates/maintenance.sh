#!/bin/sh
# A gate's service in shell: it lets jobs begin unless the node is in maintenance, which is a file.
#
#     socat UNIX-LISTEN:$HAL_HOME/gates/maintenance.sock,fork,backlog=64,mode=600 EXEC:/etc/hal/maintenance.sh
#
# It serves one connection on its standard input and output; socat, or a systemd socket with Accept=yes, starts one
# for each. `touch /run/hal-maintenance`, and jobs that name the gate wait until the file is gone. See docs/gates.md.
#
# The argument is the name of the resource that the job needs; a job may wait for that alone: /run/hal-maintenance.NAME.

flag=${HAL_MAINTENANCE:-/run/hal-maintenance}

answer() { printf '{"state":"%s","reason":"%s","again_ms":%d}\n' "$1" "$2" "${3:-0}"; exit 0; }

# A request is one line of at most 64 KiB; an agent that has not sent it within 10 s is gone.
line=$(timeout 10 head -n 1 | head -c 65536)

# Fields come in a fixed order, compact, and every quote inside of a text is escaped: so these patterns match fields only.
case $line in
'{"version":1,"ask":"enter","gate":"'*) ;;
'{"version":1,"ask":"cancel","gate":"'*) answer ready "nothing was done" ;;
*) answer refused "not a request of version 1" ;;
esac
case $line in *'}') ;; *) answer refused "not a whole request" ;; esac

# The argument comes from a user: what is not a plain name is refused, never used.
argument=$(printf '%s\n' "$line" | sed -n 's/^.*,"argument":"\([A-Za-z0-9_-]*\)"[,}].*$/\1/p')
case $line in
*',"argument":"'"$argument"'"'[,}]*) ;;
*) answer refused "the argument is not a plain name" ;;
esac

if [ -e "$flag" ]; then answer waiting "the node is in maintenance" 1000; fi
if [ -n "$argument" ] && [ -e "$flag.$argument" ]; then answer waiting "$argument is in maintenance" 1000; fi
answer ready
