#!/usr/bin/env bash
# Installs what building needs and this machine lacks: Debian packages, promtool, and LibTorch, CMake and Ninja in a virtual
# environment and the wheels of client/python in another, which all clones of one user share. It may run again at any time; a
# second run takes well under a second.
set -euo pipefail
. "$(dirname "$0")/env.sh"
mkdir -p "$hyperserve_cache/bin"
log=$hyperserve_cache/setup.log

# One set-up at a time. The lock ends with the process.
exec 9>"$hyperserve_cache/setup.lock"
flock -n 9 || { echo "setup: another set-up is running, waiting for it"; flock 9; }
log_is_new=

# step TEXT COMMAND...: prints one line, and writes the command's output to the log. If it fails, shows the end of the log.
step() {
  echo "setup: $1"
  shift
  if [ -z "$log_is_new" ]; then : >"$log" && log_is_new=1; fi
  local status
  set +e  # under `if ! ...` the shell would ignore a failing line inside the command
  (set -e && "$@") >>"$log" 2>&1 </dev/null
  status=$?
  set -e
  if [ $status != 0 ]; then
    tail -n 25 "$log" >&2
    echo "setup: failed: $* (all of it: $log)" >&2
    exit 1
  fi
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "setup: neither root nor sudo; as root run: $*" >&2
    exit 1
  fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@"; }

install_packages() {
  apt_get update
  apt_get install -y --no-install-recommends "$@"
}

# install_missing PACKAGE...: asks dpkg first, so root is needed only if a package is missing.
install_missing() {
  local missing=() have
  have=$(dpkg-query -W -f '${db:Status-Status} ${binary:Package}\n' "$@" 2>/dev/null |
    sed -n 's/^installed \([^:]*\).*/\1/p' || true)
  for package in "$@"; do
    grep -qxF -e "$package" <<<"$have" || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    step "${#missing[@]} Debian packages: ${missing[*]}" install_packages "${missing[@]}"
  fi
}

# promtool alone: installing its package would start a server.
unpack_promtool() {
  local folder=$hyperserve_cache/promtool.tmp
  rm -rf "$folder"
  mkdir -p "$folder"
  (cd "$folder" && { apt-get -qq download prometheus || { apt_get update && apt-get -qq download prometheus; }; })
  dpkg -x "$folder"/prometheus_*.deb "$folder"
  mv "$folder/usr/bin/promtool" "$hyperserve_cache/bin/promtool"
  rm -rf "$folder"
}

wheels() { "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"; }
python_wheels() { "$python_venv/bin/pip" install --quiet --disable-pip-version-check "$@"; }

# make_venv FOLDER
make_venv() {
  # Without pip it is incomplete and made again. With pip, the packages of an interrupted run are kept.
  [ -x "$1/bin/pip" ] || /usr/bin/python3 -m venv --clear "$1"
}

link_nvcc() {
  local cuda=$site/nvidia/cu13
  ln -sfn lib "$cuda/lib64"
  ln -sf libcudart.so.13 "$cuda/lib/libcudart.so"
  ln -sf libnvrtc.so.13 "$cuda/lib/libnvrtc.so"
}

# The stamp lists the contents of the environment. It is written last, so an interrupted set-up continues at the next call.
set_up_venv() {
  local wanted=("${build_pins[@]}")
  local need_nvcc=
  if [ "$device" = cuda ] && { [ -z "$nvcc" ] || [[ $nvcc == "$site"/* ]]; }; then need_nvcc=1; fi
  if [ -z "$own_libtorch" ]; then
    if [ "$device" = cuda ]; then wanted+=("${cuda_pins[@]}"); else wanted+=("${cpu_pins[@]}"); fi
  fi
  if [ -n "$need_nvcc" ]; then wanted+=("${nvcc_pins[@]}"); fi
  local stamp=$venv/hyperserve-stamp
  if [ -e "$stamp" ] && [ -z "$(printf '%s\n' "${wanted[@]}" | grep -vxFf "$stamp")" ]; then return; fi

  rm -f "$stamp"
  step "virtual environment $venv" make_venv "$venv"
  step "CMake and Ninja" wheels "${build_pins[@]}"
  if [ -n "$own_libtorch" ]; then
    :
  elif [ "$device" = cuda ]; then
    step "LibTorch $torch_pin with CUDA (about 5 GB on disk)" wheels "${cuda_pins[@]}"
  else
    step "LibTorch $torch_pin for the CPU (0.55 GB to fetch)" wheels --no-deps "${cpu_pins[@]}"
  fi
  if [ -n "$need_nvcc" ]; then
    step "nvcc from wheels, since the system has none" wheels "${cuda_pins[@]}" "${nvcc_pins[@]}"
    link_nvcc
  fi
  printf '%s\n' "${wanted[@]}" >"$stamp"
}

# Its folder is named after its pins, so the stamp says only that it is complete.
set_up_python_venv() {
  local stamp=$python_venv/hyperserve-stamp
  [ -e "$stamp" ] && return
  step "virtual environment $python_venv" make_venv "$python_venv"
  step "wheels of the Python package (70 MB to fetch)" python_wheels "${python_pins[@]}"
  touch "$stamp"
}

describe() {
  case $cuda_mode in
    ON) echo "build for GPU and CPU" ;;
    COMPILE) echo "build for the CPU, CUDA sources compiled only" ;;
    OFF) echo "build for the CPU, no nvcc" ;;
  esac
}

install_missing "${apt_packages[@]}" "$@"
[ -x "$hyperserve_cache/bin/promtool" ] || step "promtool" unpack_promtool
set_up_venv
set_up_python_venv
. "$hyperserve_root/tools/env.sh"
if [ -n "$own_libtorch" ]; then set_name="LibTorch in $own_libtorch"; else set_name="LibTorch $torch_pin $device"; fi
echo "setup: $set_name ($why; HYPERSERVE_DEVICE=cpu|cuda overrides): $(describe)"
