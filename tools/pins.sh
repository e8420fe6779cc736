# Versions of everything that does not come from Debian, and the Debian packages. Sourced by env.sh and setup.sh.
torch_pin=2.11.0
build_pins=(cmake==3.31.6 ninja==1.11.1.4)

# The light set. Linking torch_cpu and c10 needs two of the NVIDIA wheels.
cpu_pins=(torch==$torch_pin nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
# The full set, with all dependencies of the wheel.
cuda_pins=(torch==$torch_pin)
# nvcc for systems without it. The last two are pinned, since ptxas refuses the code of a newer compiler.
nvcc_pins=('cuda-toolkit[nvcc,cccl]==13.0.2' nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88)

# The Python package in client/python: what building, checking and testing it takes.
python_pins=(grpcio==1.76.0 grpcio-tools==1.76.0 grpcio-reflection==1.76.0 grpcio-health-checking==1.76.0 protobuf==6.33.6
  numpy==2.2.6 matplotlib==3.10.8 hatchling==1.28.0 pytest==8.4.2
  mypy==1.19.1 types-grpcio==1.0.0.20251009 types-protobuf==6.32.1.20251210)

apt_packages=(
  g++ make git ccache mold pkg-config ca-certificates
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  prometheus-cpp-dev libcpp-httplib-dev libspdlog-dev zlib1g-dev libssl-dev libboost-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  clang-format gnuplot-nox python3-venv python3-grpcio python3-protobuf python3-yaml tini
  dataset-fashion-mnist
)
