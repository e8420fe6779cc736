"""The sync client, health and reflection against the real daemon."""

import concurrent.futures
import gzip
import json
import pathlib

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import hyperserve
from conftest import ROOT, Daemon

IMAGES = pathlib.Path("/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz")


@pytest.fixture(scope="module")
def images():
    with gzip.open(IMAGES) as file:
        return np.frombuffer(file.read(16 + 8 * 784)[16:], np.uint8).reshape(8, 1, 28, 28)


def heun(model):
    """The model's correction of Heun's method."""
    return next(one for one in model.corrections if one.method == "heun")


def test_samples_are_those_of_the_command_line(client, daemon):
    result = client.sample("pinwheel", 10, seed=7, plan="hyper_heun:2", first_row=3)
    theirs = json.loads(daemon.run(
        "sample", "--model=pinwheel", "--rows=10", "--seed=7", "--plan=hyper_heun:2", "--first_row=3", "--format=json").stdout)
    assert result.samples.dtype == np.float32 and result.samples.shape == (10, 2)
    np.testing.assert_array_equal(result.samples, np.array(theirs["samples"], np.float32))
    info = result.info
    assert (info.model, info.plan, info.tier) == ("pinwheel", "hyper_heun:2", "exact")
    assert info.generation == heun(client.model("pinwheel").model).generation
    assert info.nfe.tolist() == [4] * 10 and info.correction_evaluations.tolist() == [2] * 10
    assert (info.macs > 0).all() and info.failed_rows.size == 0 and info.engine and info.request_id


def test_a_stream_holds_the_samples_of_one_call(client):
    whole = client.sample("rings", 1000, seed=3, plan="euler:4", log_density=True)
    stream = client.sample_stream("rings", 1000, seed=3, plan="euler:4", chunk_rows=128, log_density=True)
    done = [0]
    parts = []
    for chunk in stream:
        parts.append(chunk)
        assert chunk.first_row == done[-1] and (chunk.row_status == hyperserve.RowStatus.CONVERGED).all()
        done.append(stream.done)
    assert done[-1] == stream.rows == 1000 and len(parts) >= 7
    assert stream.info is not None and stream.info.plan == "euler:4" and stream.info.nfe.shape == (1000,)
    np.testing.assert_array_equal(np.concatenate([part.samples for part in parts]), whole.samples)
    np.testing.assert_array_equal(np.concatenate([part.log_density for part in parts]), whole.log_density)


def test_more_rows_than_one_reply_holds(client):
    assert sum(len(chunk.samples) for chunk in client.sample_stream("pinwheel", 40_000, plan="euler:1")) == 40_000
    with pytest.raises(hyperserve.InvalidArgumentError, match="request_rows_max"):
        client.sample("pinwheel", 40_000)


def test_classify(client, images):
    result = client.classify("fashion", images, plan="euler:2", top_k=3, probabilities=True, logits=True, state=True)
    assert result.labels.shape == (8,) and result.labels.dtype == np.int64 and len(result.names) == 8
    np.testing.assert_allclose(result.probabilities.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(result.probabilities.argmax(1), result.labels)
    np.testing.assert_array_equal(result.top_labels[:, 0], result.labels)
    assert result.top_probabilities.shape == (8, 3) and result.logits.shape == (8, 10)
    assert result.state.shape == (8, 32, 28, 28) and result.info.nfe.tolist() == [2] * 8
    # The server divides bytes by 255 in double; numpy's float32 quotient is the same number, correctly rounded.
    floats = client.classify("fashion", images.astype(np.float32) / 255, plan="euler:2", logits=True)
    np.testing.assert_array_equal(floats.logits, result.logits)
    bare = client.classify("fashion", images)
    assert bare.logits is None and bare.top_labels is None


def test_log_prob(client):
    sampled = client.sample("pinwheel", 64, seed=1, plan="dopri5:1e-6", log_density=True)
    found = client.log_prob("pinwheel", sampled.samples, plan="dopri5:1e-6")
    assert found.log_prob.dtype == np.float64
    np.testing.assert_allclose(found.log_prob, sampled.log_density, atol=1e-3)  # two solves in float32
    points = sampled.samples.astype(np.float64)
    double = client.log_prob("pinwheel", points, plan="dopri5:1e-9/double")
    assert double.info.tier == "double"
    np.testing.assert_allclose(double.log_prob, found.log_prob, atol=1e-3)
    # Lists, float64 and arrays that are not contiguous are sent as float32.
    same = client.log_prob("pinwheel", np.asfortranarray(points).tolist(), plan="dopri5:1e-6")
    np.testing.assert_array_equal(same.log_prob, found.log_prob)


def test_solve(client):
    start = np.array([[0.5, -1.0], [2.0, 0.25]])
    result = client.solve("pinwheel", state=start, plan="rk4:4/double", save_at=[0.0, 0.5, 1.0])
    assert result.state.shape == (2, 2) and result.saved.shape == (2, 3, 2) and result.state.dtype == np.float64
    np.testing.assert_array_equal(result.saved[:, 0], start)
    np.testing.assert_array_equal(result.saved[:, 2], result.state)
    half = client.solve("pinwheel", start, plan="rk4:2/double", span=(0, 0.5))
    np.testing.assert_allclose(half.state, result.saved[:, 1], rtol=1e-12)
    with pytest.raises(TypeError, match="either"):
        client.solve("pinwheel")


def test_rows_that_fail_do_not_fail_the_call(client):
    result = client.solve("pinwheel", state=[[0.5, 0.5], [1.0, 1.0]], plan="dopri5:1e-6", max_steps=1)
    assert result.info.failed_rows.tolist() == [0, 1] and np.isnan(result.state).all()
    assert set(result.info.row_status) == {hyperserve.RowStatus.STEP_LIMIT}


def test_what_is_served(client):
    models = {model.name: model for model in client.models()}
    assert list(models) == sorted(models) and {"fashion", "pinwheel", "rings"} <= set(models)
    assert models["rings"].kind == "flow" and models["rings"].input_shape == (2,)
    assert heun(models["rings"]).generation > 0 and heun(models["rings"]).steps
    fashion = client.model("fashion")
    assert fashion.labels[0] == "T-shirt/top" and fashion.state_shape == (32, 28, 28) and fashion.field_macs > 0
    assert json.loads(fashion.spec_json)["kind"] == "classifier"
    assert any(plan.plan == "hyper_euler:2" for plan in fashion.plans)
    info = client.server_info()
    assert info.version and "readable" in info.engines and any(limit.name == "steps_max" for limit in info.limits)


@pytest.mark.parametrize("kind, words, call", [
    (hyperserve.NotFoundError, "nobody", lambda client: client.sample("nobody", 1)),
    (hyperserve.NotFoundError, "nobody", lambda client: client.model("nobody")),
    (hyperserve.NotFoundError, "nobody", lambda client: list(client.sample_stream("nobody", 1))),
    (hyperserve.InvalidArgumentError, "eulr", lambda client: client.sample("pinwheel", 1, plan="eulr:1")),
    (hyperserve.InvalidArgumentError, "shape", lambda client: client.log_prob("pinwheel", [[1.0]])),
    (hyperserve.InvalidArgumentError, "finite", lambda client: client.log_prob("pinwheel", [[1.0, float("nan")]])),
    (hyperserve.FailedPreconditionError, "0.002 lies outside", lambda client: client.sample("pinwheel", 1, plan="hyper_heun:500")),
    (hyperserve.DeadlineExceededError, "[Dd]eadline", lambda client: client.sample("pinwheel", 4000, plan="rk4:5000", timeout=0.1)),
])
def test_failures(client, kind, words, call):
    client.models()  # connects, which the shortest deadline leaves no time for
    with pytest.raises(kind, match=words):
        call(client)


def test_the_wrong_port_is_named(daemon):
    with hyperserve.Client(daemon.admin_address) as client:
        with pytest.raises(hyperserve.UnimplementedError, match="Admin at its admin_address and the rest at its address"):
            client.models()
    with pytest.raises(hyperserve.UnimplementedError, match="Admin at its admin_address"):
        hyperserve.admin.rollback("rings", "heun", address=daemon.address)


def test_arrays_that_hold_no_numbers(client):
    for bad in (["a"], [True], [1j], [None]):
        with pytest.raises(TypeError, match="numbers are wanted"):
            client.log_prob("pinwheel", bad)


def test_threads_share_a_client(client):
    def call(seed):
        return client.sample("pinwheel", 16, seed=seed, plan="euler:2").samples

    alone = [call(seed) for seed in range(32)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        np.testing.assert_array_equal(list(pool.map(call, range(32))), alone)


def test_health_and_reflection_of_grpcio(daemon):
    with grpc.insecure_channel(daemon.address, [("grpc.enable_http_proxy", 0)]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "hyperserve.v1.Hyperserve", "model/rings"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest(service=""), timeout=30)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        reflected = ProtoReflectionDescriptorDatabase(channel)
        assert "hyperserve.v1.Hyperserve" in reflected.get_services()
        service = descriptor_pool.DescriptorPool(reflected).FindServiceByName("hyperserve.v1.Hyperserve")
        assert "Classify" in service.methods_by_name


def test_publish_and_rollback(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("published"), ROOT / "models")
    admin = hyperserve.admin
    with hyperserve.Client(daemon.address) as client:
        active = heun(client.model("rings").model).generation
        generation = ROOT / f"models/rings/hypersolvers/heun/{active}"
        published = admin.publish(generation, model="rings", parent_generation=active, address=daemon.admin_address)
        assert published.generation > active == published.previous_generation
        assert all(one.candidate_error < one.base_error and one.active_error is not None for one in published.gate)
        with pytest.raises(hyperserve.AbortedError, match=str(published.generation)):
            admin.publish(generation, model="rings", parent_generation=active, address=daemon.admin_address)
        with pytest.raises(hyperserve.FailedPreconditionError):
            admin.publish(generation, model="pinwheel", address=daemon.admin_address)
        back = admin.rollback("rings", "heun", address=daemon.admin_address)
        assert (back.generation, back.previous_generation) == (active, published.generation)
        assert client.sample("rings", 1, plan="hyper_heun:3").info.generation == active
    with pytest.raises(ValueError, match="names no method"):
        folder = daemon.models / "no_method"
        folder.mkdir()
        (folder / "hypersolver.json").write_text("{}")
        admin.publish(folder, model="rings", address=daemon.admin_address)
    daemon.stop()
