#!/bin/sh
# Install HAL on this machine from a wheel, as root, under systemd. docs/install.md explains each step.
#
#   sh install-hal.sh head WHEEL                the machine of the controller
#   sh install-hal.sh node WHEEL HEAD < TOKEN   a machine that runs jobs; TOKEN is from `hal token create` on the head
#   sh install-hal.sh upgrade WHEEL             another version; running jobs continue
#   sh install-hal.sh remove                    stop HAL and remove the program; its state and backups are kept
#
# PREFIX (/opt/hal), HAL_HOME (/var/lib/hal), BIN (/usr/local/bin), BACKUPS (/var/backups/hal), PYTHON (python3) and
# PIP_OPTIONS may be set.
set -eu

prefix=${PREFIX:-/opt/hal}
bin=${BIN:-/usr/local/bin}
backups=${BACKUPS:-/var/backups/hal}
HAL_HOME=${HAL_HOME:-/var/lib/hal}
export HAL_HOME

fail() { printf 'install-hal: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

install_wheel() {
    [ -f "$1" ] || fail "there is no wheel $1"
    if [ ! -x "$prefix/bin/python" ]; then
        "${PYTHON:-python3}" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' ||
            fail "HAL needs Python 3.11 or newer with venv (Debian: apt-get install python3-venv), or PYTHON=..."
        "${PYTHON:-python3}" -m venv "$prefix"
    fi
    # shellcheck disable=SC2086
    "$prefix/bin/python" -m pip install --quiet --disable-pip-version-check ${PIP_OPTIONS:-} --upgrade "$1"
    ln -sfn "$prefix/bin/hal" "$bin/hal"
}

make_home() {
    [ -d "$HAL_HOME" ] || mkdir -p -m 700 "$HAL_HOME"
}

[ "$#" -ge 1 ] || usage
[ "$(id -u)" = 0 ] || fail "only root installs a service of the machine; for one of your own: hal service install --user"
case $1 in
head)
    [ "$#" = 2 ] || usage
    install_wheel "$2"
    make_home
    if [ ! -e "$HAL_HOME/hal.toml" ]; then
        cat > "$HAL_HOME/hal.toml" <<'EOF'
# `hal config show` prints every setting; `hal config check` reads this file as a start does.
[server]
wire = "0.0.0.0:7422"       # agents of other machines

[access]
users = ["*"]               # every user of this machine may submit jobs; they run as that user
EOF
    fi
    "$bin/hal" config check
    "$bin/hal" service install --backup "$backups"
    systemctl daemon-reload
    systemctl enable --now hal hal-backup.timer
    ;;
node)
    [ "$#" = 3 ] || usage
    install_wheel "$2"
    make_home
    "$bin/hal" agent --join - --controller "$3" --no-restart   # reads the token from standard input
    "$bin/hal" down --leave
    "$bin/hal" service install
    systemctl daemon-reload
    systemctl enable --now hal
    ;;
upgrade)
    [ "$#" = 2 ] || usage
    install_wheel "$2"
    "$bin/hal" service install --help > /dev/null            # the new version works here
    systemctl restart hal
    ;;
remove)
    timer=
    [ ! -e /etc/systemd/system/hal-backup.timer ] || timer=hal-backup.timer
    # shellcheck disable=SC2086
    systemctl disable --now hal $timer
    "$bin/hal" down --kill
    "$bin/hal" service remove
    systemctl daemon-reload
    rm -rf "$prefix"
    rm -f "$bin/hal"
    echo "HAL's state is kept in $HAL_HOME, backups in $backups"
    ;;
*)
    usage
    ;;
esac
