#!/usr/bin/env python3
"""Classifies images and samples a flow, with the Python stubs that the build generates.

    PYTHONPATH=build/release/python python3 client/python/classify_and_sample.py \
        --classifier fashion --images t10k-images-idx3-ubyte.gz --flow pinwheel

Needs Debian's python3-grpcio and python3-protobuf, nothing else. Prints one JSON object.
"""
import argparse
import array
import gzip
import json
import struct
import sys

import grpc

# Beside this script stands the package of the same name, which needs numpy; this one needs the stubs alone.
del sys.path[0]

from hyperserve.v1 import hyperserve_pb2 as v1
from hyperserve.v1 import hyperserve_pb2_grpc as stubs


def read_idx_images(path, limit):
    """The first `limit` images of an IDX file as (bytes, shape)."""
    opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
    with opened as file:
        header = file.read(16)
        if len(header) < 16 or header[:4] != b"\x00\x00\x08\x03":
            sys.exit(f"{path}: not an IDX file of images")
        count, height, width = struct.unpack(">III", header[4:])
        rows = min(count, limit)
        images = file.read(rows * height * width)
        if len(images) < rows * height * width:
            sys.exit(f"{path}: ends within its first {rows} images of {height} x {width}")
        return images, (rows, 1, height, width)


def floats(tensor):
    """The numbers of a tensor of the wire, F32 or F64, as a flat list."""
    values = array.array({v1.DTYPE_F32: "f", v1.DTYPE_F64: "d"}[tensor.dtype])
    values.frombytes(tensor.data)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def classify(daemon, model, plan, images, shape, timeout):
    request = v1.ClassifyRequest(
        options=v1.SolveOptions(model=model, plan=v1.Plan(text=plan)),
        inputs=v1.Tensor(dtype=v1.DTYPE_U8, shape=shape, data=images))
    reply = daemon.Classify(request, timeout=timeout)
    return {"labels": list(reply.labels), "names": list(reply.label_names),
            "plan": reply.info.plan, "nfe": list(reply.info.nfe)}


def sample(daemon, model, plan, rows, seed, timeout):
    request = v1.SampleRequest(
        options=v1.SolveOptions(model=model, plan=v1.Plan(text=plan)), rows=rows, seed=seed)
    reply = daemon.Sample(request, timeout=timeout)
    return {"samples": floats(reply.samples), "shape": list(reply.samples.shape),
            "plan": reply.info.plan, "generation": reply.info.generation}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--address", default="127.0.0.1:8500")
    parser.add_argument("--classifier", required=True)
    parser.add_argument("--images", required=True, help="IDX file, gzipped or not")
    parser.add_argument("--flow", required=True)
    parser.add_argument("--plan", default="default")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=30, help="seconds")
    options = parser.parse_args()
    if options.rows < 1:
        parser.error(f"--rows={options.rows} is below 1")
    try:
        images, shape = read_idx_images(options.images, options.rows)
    except (OSError, EOFError, OverflowError) as error:
        sys.exit(f"{options.images}: {error}")
    # An HTTP proxy does not lead to a daemon, least of all to one on loopback.
    with grpc.insecure_channel(options.address, [("grpc.enable_http_proxy", 0)]) as channel:
        daemon = stubs.HyperserveStub(channel)
        try:
            print(json.dumps({
                "classify": classify(daemon, options.classifier, options.plan, images, shape,
                                     options.timeout),
                "sample": sample(daemon, options.flow, options.plan, options.rows, options.seed,
                                 options.timeout)}))
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
