"""The solves of bench_flow_kernel in PyTorch, on the same card: eager in float32, and captured as a CUDA graph with
TensorFloat-32. Host time from call to synchronise, median of 200, noise made on the device."""

import statistics
import time

import torch


def flow(hidden=128):
    """A field 2-128-128-128-2 with softplus, and a correction 5-128-2 with PReLU."""
    linear, softplus = torch.nn.Linear, torch.nn.Softplus
    field = torch.nn.Sequential(linear(2, hidden), softplus(), linear(hidden, hidden), softplus(),
                                linear(hidden, hidden), softplus(), linear(hidden, 2))
    correction = torch.nn.Sequential(linear(5, hidden), torch.nn.PReLU(), linear(hidden, 2))
    return field.cuda(), correction.cuda()


def hyper_heun(field, correction, z, eps=1.0):
    r1 = field(z)
    r2 = field(z + eps * r1)
    step = torch.full_like(z[:, :1], eps)
    g = correction(torch.cat([z, r1, step], 1))
    return z + eps / 2 * (r1 + r2) + eps**3 * g


def median_ms(call, repeats=200, warm_ups=20):
    times = []
    for i in range(warm_ups + repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if i >= warm_ups:
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def captured(call):
    """The call as a graph, replayed."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


@torch.inference_mode()
def measure():
    """Yields (rows, milliseconds by peer) of hyper_heun:1."""
    torch.manual_seed(1)
    field, correction = flow()
    for rows in (1024, 65536, 1048576):
        z = torch.empty(rows, 2, device="cuda")

        def solve():
            return hyper_heun(field, correction, z.normal_())

        torch.backends.cuda.matmul.allow_tf32 = False
        eager = median_ms(solve)
        torch.backends.cuda.matmul.allow_tf32 = True
        yield rows, {"eager_float32": eager, "graph_tf32": median_ms(captured(solve))}


def main():
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, flow 2-128-128-128-2, hyper_heun:1, ms")
    for rows, peers in measure():
        print(f"{rows:8d}  " + "  ".join(f"{name} {ms:8.4f}" for name, ms in peers.items()))


if __name__ == "__main__":
    main()
