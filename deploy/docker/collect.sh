#!/usr/bin/env bash
# Makes the folder that the runtime image needs of a release build, and no more:  collect.sh PREFIX
#   PREFIX/bin       the programs
#   PREFIX/lib       the libraries that no Debian package holds (LibTorch and what it links)
#   PREFIX/packages  the Debian packages that hold the others
#   PREFIX/recipes   what the trainer reads
set -euo pipefail
. "$(dirname "$0")/../../tools/env.sh"
cd "$hyperserve_root"
prefix=$1
programs=(hyperserve hyperserve-client hyperserve-train)

cmake --install build/release --strip --prefix "$prefix" >/dev/null
mkdir -p "$prefix/lib"
cp -r training/recipes "$prefix/recipes"

mapfile -t libraries < <(ldd "${programs[@]/#/build/release/bin/}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u)
for library in "${libraries[@]}"; do
  case $library in
    "$libtorch"/* | "$site"/*) cp -L "$library" "$prefix/lib/" ;;
    # Where /lib is a link to /usr/lib, dpkg may know a file under either name.
    *) dpkg -S "$library" 2>/dev/null || dpkg -S "/usr$library" ;;
  esac
done | sed 's/:.*//' | sort -u >"$prefix/packages"
