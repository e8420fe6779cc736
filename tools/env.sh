# Sourced: chooses the set of wheels for this machine, and sets the variables for building and running. Writes nothing.
#   HYPERSERVE_DEVICE=cpu|cuda   overrides the detection of a GPU
#   LIBTORCH=folder              a LibTorch of your own instead of the wheel
#   JOBS=n                       compilers at once
hyperserve_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$hyperserve_root/tools/pins.sh"
hyperserve_cache=${XDG_CACHE_HOME:-$HOME/.cache}/hyperserve

case ${HYPERSERVE_DEVICE:-} in
  cpu | cuda) device=$HYPERSERVE_DEVICE why="HYPERSERVE_DEVICE=$HYPERSERVE_DEVICE" ;;
  "")
    if [ -e /dev/nvidia0 ] || { command -v nvidia-smi && nvidia-smi -L; } >/dev/null 2>&1; then
      device=cuda why="a GPU is here"
    else
      device=cpu why="no GPU is here"
    fi ;;
  *) echo "HYPERSERVE_DEVICE must be cpu or cuda, not '$HYPERSERVE_DEVICE'" >&2; return 2 ;;
esac

venv=$hyperserve_cache/torch-$torch_pin-$device
site=$venv/lib/python3.11/site-packages
python_venv=$hyperserve_cache/python-$(printf '%s\n' "${python_pins[@]}" | sha256sum | cut -c1-8)
own_libtorch=${LIBTORCH:-}
libtorch=${own_libtorch:-$site/torch}

# nvcc of CUDA 13: from the system, else from the wheels of the full set.
nvcc=
for candidate in "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" "$(command -v nvcc || true)" "$site/nvidia/cu13/bin/nvcc"; do
  if [ -x "$candidate" ] && "$candidate" --version | grep -q 'release 13\.'; then nvcc=$candidate; break; fi
done

# Without a GPU, the CUDA sources are compiled where there is nvcc, so that they keep compiling.
cuda_mode=OFF
if [ -n "$nvcc" ]; then cuda_mode=COMPILE; fi
if [ $device = cuda ] && [ -n "$nvcc" ] && [ -e "$libtorch/lib/libtorch_cuda.so" ]; then cuda_mode=ON; fi

run_device=cpu
if [ $cuda_mode = ON ]; then run_device=cuda:0; fi

cmake_arguments=(-DLIBTORCH="$libtorch" -DHYPERSERVE_CUDA=$cuda_mode -DHYPERSERVE_PYTHON="$python_venv/bin/python")
if [ -n "$nvcc" ]; then
  cmake_arguments+=(-DCMAKE_CUDA_COMPILER="$nvcc" -DCUDAToolkit_ROOT="${nvcc%/bin/nvcc}")
fi

# One compiler takes up to 2 GB.
memory_gb=$(awk '/MemTotal/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
if [ $((memory_gb / 2)) -lt "$jobs" ]; then jobs=$((memory_gb / 2)); fi
if [ "$jobs" -lt 1 ]; then jobs=1; fi
jobs=${JOBS:-$jobs}

export PATH=$venv/bin:$hyperserve_cache/bin:$PATH
export CCACHE_DIR=${CCACHE_DIR:-$hyperserve_cache/ccache}
export CCACHE_BASEDIR=$hyperserve_root CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-8G}
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
