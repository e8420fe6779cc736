"""The solves of bench_conv_kernel in PyTorch, on the same card: eager in float32, and captured as a CUDA graph with
TensorFloat-32; dopri5 in torchdiffeq. Host time from call to synchronise, median of 200, states on the device."""

import math

import torch

from flow_peers import captured, median_ms


def conv(inputs, outputs):
    return torch.nn.Conv2d(inputs, outputs, 3, padding=1)


def field(channels=32, hidden=46):
    """The paper's field for MNIST: 32-46-46-32 with softplus."""
    softplus = torch.nn.Softplus
    return torch.nn.Sequential(conv(channels, hidden), softplus(), conv(hidden, hidden), softplus(),
                               conv(hidden, channels)).cuda()


def correction(channels=32):
    """Its correction 65-32-32-32 with PReLU."""
    prelu = torch.nn.PReLU
    return torch.nn.Sequential(conv(2 * channels + 1, channels), prelu(), conv(channels, channels), prelu(),
                               conv(channels, channels)).cuda()


def steep(net, gain=3.0):
    """Weights as SteepNet of bench_conv_kernel has them."""
    for layer in net:
        if isinstance(layer, torch.nn.Conv2d):
            bound = gain / math.sqrt(9 * layer.in_channels)
            torch.nn.init.uniform_(layer.weight, -bound, bound)
            torch.nn.init.uniform_(layer.bias, -bound, bound)
    return net


def hyper_euler(f, g, z, steps=2):
    eps = 1.0 / steps
    step = torch.full_like(z[:, :1], eps)
    for _ in range(steps):
        slope = f(z)
        z = z + eps * slope + eps**2 * g(torch.cat([z, slope, step], 1))
    return z


def maps_of(evaluations, channels=32):
    """a_0, B_00, a_1, B_10, B_11, ... of a table."""
    count = evaluations * (evaluations + 3) // 2
    return torch.nn.ModuleList(torch.nn.Conv2d(channels, channels, 1) for _ in range(count)).cuda()


def readout(evaluations, hidden, middle=3, channels=32):
    """The net of a table at half the resolution."""
    layers = [torch.nn.PixelUnshuffle(2), torch.nn.Conv2d(4 * channels * (evaluations + 2), hidden, 1)]
    for _ in range(middle):
        layers += [torch.nn.SiLU(), conv(hidden, hidden)]
    layers += [torch.nn.SiLU(), torch.nn.Conv2d(hidden, 4 * channels, 1), torch.nn.PixelShuffle(2)]
    return torch.nn.Sequential(*layers).cuda()


def by_table(f, maps, z, evaluations, net=None):
    slopes, x, rest = [], z, iter(maps)
    for _ in range(evaluations):
        slopes.append(f(x))
        x = sum((next(rest)(slope) for slope in slopes), next(rest)(z))
    return x if net is None else x + net(torch.cat([z, x, *slopes], 1))


def states(rows):
    return torch.randn(rows, 32, 28, 28, device="cuda")


def measure_fixed(solve):
    """Yields (rows, milliseconds by peer)."""
    for rows in (1, 32, 256, 1024):
        z = states(rows)
        torch.backends.cudnn.allow_tf32 = False
        eager = median_ms(lambda: solve(z))
        torch.backends.cudnn.allow_tf32 = True
        yield rows, {"eager_float32": eager, "graph_tf32": median_ms(captured(lambda: solve(z)))}


def measure_adaptive():
    """Yields the same of torchdiffeq, whose rows share their steps; nothing where it is not installed."""
    try:
        from torchdiffeq import odeint
    except ImportError:
        return
    f, span = steep(field()), torch.tensor([0.0, 1.0], device="cuda")
    torch.backends.cudnn.allow_tf32 = False
    for rows in (1, 32, 256):
        z = states(rows)
        ms = median_ms(lambda: odeint(lambda _, x: f(x), z, span, rtol=1e-4, atol=1e-4, method="dopri5"), repeats=20)
        yield rows, {"torchdiffeq_float32": ms}


@torch.inference_mode()
def measure():
    """(plan, rows): milliseconds by peer."""
    torch.manual_seed(1)
    f, g = field(), correction()
    three, six, of_three, of_six = maps_of(3), maps_of(6), readout(3, 32), readout(6, 64)
    plans = {"hyper_euler:2": measure_fixed(lambda z: hyper_euler(f, g, z)),
             "learned:3": measure_fixed(lambda z: by_table(f, three, z, 3)),
             "learned:3 with g": measure_fixed(lambda z: by_table(f, three, z, 3, of_three)),
             "learned:6 with g": measure_fixed(lambda z: by_table(f, six, z, 6, of_six)),
             "dopri5:1e-4": measure_adaptive()}
    return {(plan, rows): peers for plan, measured in plans.items() for rows, peers in measured}


def main():
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, 32-46-46-32 on 28x28, ms")
    for (plan, rows), peers in measure().items():
        print(f"{plan:16s} {rows:6d}  " + "  ".join(f"{name} {ms:8.4f}" for name, ms in peers.items()))


if __name__ == "__main__":
    main()
