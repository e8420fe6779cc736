"""The solves of bench_conv_kernel in PyTorch, on the same card: eager in float32, and captured as a CUDA graph with
TensorFloat-32. Host time from call to synchronise, median of 200, states on the device."""

import torch

from flow_peers import captured, median_ms


def net(channels=32, hidden=46):
    """The paper's net for MNIST: a field 32-46-46-32 with softplus, and a correction 65-32-32-32 with PReLU."""

    def conv(inputs, outputs):
        return torch.nn.Conv2d(inputs, outputs, 3, padding=1)

    softplus, prelu = torch.nn.Softplus, torch.nn.PReLU
    field = torch.nn.Sequential(conv(channels, hidden), softplus(), conv(hidden, hidden), softplus(),
                                conv(hidden, channels))
    correction = torch.nn.Sequential(conv(2 * channels + 1, channels), prelu(), conv(channels, channels), prelu(),
                                     conv(channels, channels))
    return field.cuda(), correction.cuda()


def hyper_euler(field, correction, z, steps=2):
    eps = 1.0 / steps
    step = torch.full_like(z[:, :1], eps)
    for _ in range(steps):
        slope = field(z)
        z = z + eps * slope + eps**2 * correction(torch.cat([z, slope, step], 1))
    return z


@torch.inference_mode()
def measure():
    """Yields (rows, milliseconds by peer) of hyper_euler:2."""
    torch.manual_seed(1)
    field, correction = net()
    for rows in (1, 32, 256, 1024):
        z = torch.randn(rows, 32, 28, 28, device="cuda")

        def solve():
            return hyper_euler(field, correction, z)

        torch.backends.cudnn.allow_tf32 = False
        eager = median_ms(solve)
        torch.backends.cudnn.allow_tf32 = True
        yield rows, {"eager_float32": eager, "graph_tf32": median_ms(captured(solve))}


def main():
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, 32-46-46-32 on 28x28, hyper_euler:2, ms")
    for rows, peers in measure():
        print(f"{rows:8d}  " + "  ".join(f"{name} {ms:8.4f}" for name, ms in peers.items()))


if __name__ == "__main__":
    main()
