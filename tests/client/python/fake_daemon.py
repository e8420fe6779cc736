"""A gRPC server that answers as a test tells it, and a relay that counts and cuts connections."""

import concurrent.futures
import contextlib
import socket
import threading

import grpc
import numpy as np

from hyperserve.v1 import hyperserve_pb2 as v1
from hyperserve.v1 import hyperserve_pb2_grpc as stubs


class FakeDaemon(stubs.HyperserveServicer):
    """`script`: one function for each attempt, of (request, context); the last one answers all further attempts."""

    def __init__(self):
        self.script, self.requests = [], []
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        stubs.add_HyperserveServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _answer(self, request, context):
        act = self.script[min(len(self.requests), len(self.script) - 1)]
        self.requests.append(request)
        return act(request, context)

    def Sample(self, request, context):
        return self._answer(request, context)

    def SampleStream(self, request, context):
        yield from self._answer(request, context)

    def stop(self):
        self._server.stop(0).wait()


def fails(code, words="no", pushback=None):
    def act(request, context):
        if pushback is not None:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback),))
        context.abort(code, words)

    return act


def numbers(first, rows):
    data = np.arange(first, first + rows, dtype="<f4").tobytes()
    return v1.Tensor(dtype=v1.DTYPE_F32, shape=[rows, 1], data=data)


def samples(request, context):
    return v1.SampleReply(samples=numbers(request.first_row, request.rows), info=v1.SolveInfo(nfe=[7]))


def chunks(count, generation=3, then=None, shift=0, failed=()):
    """`count` chunks of two rows of what is asked for; then the summary, or `then`. Rows `failed` ran out of steps."""

    def act(request, context):
        asked = request.sample
        for i in range(count):
            last = i == count - 1 and then is None
            first = asked.first_row + 2 * i + shift
            status = [v1.ROW_STATUS_STEP_LIMIT if row in failed else v1.ROW_STATUS_CONVERGED for row in (first, first + 1)]
            yield v1.SampleChunk(
                first_row=first, rows=2, samples=numbers(first, 2), generation=generation, nfe=[4],
                row_status=status[:1] if status[0] == status[1] else status,  # as the daemon sends them
                summary=v1.SolveInfo(generation=generation, nfe=[4]) if last else None)
        if then is not None:
            then(request, context)

    return act


class Relay:
    """Forwards connections to `target`; `connections` have been made, `cut` breaks those that are open."""

    def __init__(self, target):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections, self._open, self._sockets, self._threads = 0, [], [], []
        self._begin(self._accept)

    def _begin(self, *call):
        self._threads.append(threading.Thread(target=call[0], args=call[1:], daemon=True))
        self._threads[-1].start()

    def _accept(self):
        host, port = self._target.rsplit(":", 1)
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((host, int(port)))
                self.connections += 1
                self._open += [near, far]
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    self._begin(self._copy, source, sink)

    @staticmethod
    def _copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def cut(self):
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()
