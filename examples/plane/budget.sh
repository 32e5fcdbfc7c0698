#!/bin/sh
# The gate `budget` once more, in shell: for nodes on other machines than the plane, without Python or a database.
#
#     socat UNIX-LISTEN:$HAL_HOME/gates/budget.sock,fork,backlog=64,mode=600 EXEC:budget.sh
#
# It serves one connection on its standard input and output. The users whose budget is spent are the lines of a file that
# the plane keeps, HAL_HOME/spot/over-budget; copy it to the nodes, and name it in HAL_OVER_BUDGET. See docs/gates.md.

over=${HAL_OVER_BUDGET:-${HAL_HOME:?}/spot/over-budget}

answer() { printf '{"state":"%s","reason":"%s"}\n' "$1" "$2"; exit 0; }

# A request is one line of at most 64 KiB; an agent that has not sent it within 10 s is gone.
line=$(timeout 10 head -n 1 | head -c 65536)

# Fields come in a fixed order, compact, and every quote inside of a text is escaped: so these patterns match fields only.
case $line in
'{"version":1,"ask":"enter","gate":"'*'}') ;;
'{"version":1,"ask":"cancel","gate":"'*'}') answer ready "" ;;
*) answer refused "not a request of version 1" ;;
esac
case $line in
*',"argument":""'[,}]*) ;;
*) answer refused "this gate takes no argument" ;;
esac
user=$(printf '%s\n' "$line" | sed -n 's/^.*,"user":"\([^"\\]*\)",.*$/\1/p')
if [ -z "$user" ]; then answer refused "no user"; fi
if grep -Fqx -- "$user" "$over" 2>/dev/null; then answer refused "the budget is spent"; fi
answer ready ""
