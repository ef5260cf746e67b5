# Installs what the clients' tests need beside the build, pinned, and only where it is not there yet. To be sourced in
# the repository's root; a missing tool is a failure.

target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
binary=${STREAMGAUGE_BIN:-$target/debug/streamgauge}

for tool in python3 openssl node npm; do
    command -v "$tool" >/dev/null || { echo "tests/clients: $tool is missing; install Debian's packages python3, openssl, nodejs and npm" >&2; exit 1; }
done
[[ -x $binary ]] || { echo "tests/clients: $binary is missing; build it with: cargo build" >&2; exit 1; }

# python_packages VENV REQUIREMENTS
python_packages() {
    cmp --silent "$2" "$1/installed.txt" && return
    rm -rf "$1"
    python3 -m venv "$1" || { echo "tests/clients: python3 cannot make virtual environments; install Debian's package python3-venv" >&2; return 1; }
    "$1/bin/pip" install --quiet --disable-pip-version-check --requirement "$2" || return
    cp "$2" "$1/installed.txt"
}

# node_packages FOLDER SOURCE ci|install [SCRIPT…]: what the lock file of SOURCE says, and then the packages' own install
# scripts that are named. `ci` wants each package for every platform in the lock; `install` does with those that exist.
node_packages() {
    local folder=$1 source=$2 how=$3 script
    cmp --silent "$source/package-lock.json" "$folder/installed.json" && return
    mkdir -p "$folder"
    cp "$source/package.json" "$source/package-lock.json" "$source/.npmrc" "$folder/"
    npm "$how" --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error || return
    for script in "${@:4}"; do
        (cd "$folder/node_modules/$(dirname "$script")" && node "$(basename "$script")") || return
    done
    cp "$source/package-lock.json" "$folder/installed.json"
}
