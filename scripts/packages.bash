# The scripts that need Debian packages source this file. Installing takes root.

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

# apt-get asks a mirror again after a failure, and waits for other processes that install packages.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"; }

# install_missing PACKAGE...: installs the packages that this host lacks.
install_missing() {
    local package missing=()
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
            missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    say "installing Debian packages: ${missing[*]}"
    apt update
    apt -y --no-install-recommends install "${missing[@]}" >/dev/null
}

# install_mypyc: installs the compiler that setup.py uses into .venv, which has it if it has the linters.
install_mypyc() {
    .venv/bin/python -c 'import mypyc' 2>/dev/null || .venv/bin/python -m pip install --quiet \
        --disable-pip-version-check "$(sed -n 's/^ *"\(mypy>=.*\)",/\1/p' pyproject.toml)"
}
