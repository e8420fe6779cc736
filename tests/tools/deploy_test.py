"""What can be known of deploy/ and docker-compose.yml without a Docker engine: every name in them names something."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
PROMETHEUS = ROOT / "deploy/prometheus/prometheus.yml"
FLAG = re.compile(r"--(\w+)")


@functools.cache
def flags_of(*command):
    """The flags that a program, or one command of it, knows by its own help."""
    out = subprocess.run([pathlib.Path(os.environ["BIN_DIR"]) / command[0], *command[1:], "--help"], capture_output=True,
                         text=True)
    return set(re.findall(r"^\s+--(\w+)\b", out.stdout, re.M))


def compose():
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def instructions():
    """(name, arguments) of the Dockerfile's lines, continuations joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


class ComposeTest(unittest.TestCase):
    def test_services_name_what_is_there(self):
        document = compose()
        services = document["services"]
        built = {s["image"] for s in services.values() if "build" in s}
        for name, service in services.items():
            with self.subTest(name):
                if "build" in service:
                    self.assertTrue((ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file())
                elif service["image"] not in built:
                    self.assertRegex(service["image"], r":v?\d", "pinned")
                for other in service.get("depends_on", {}):
                    self.assertIn(other, services)
                for volume in service.get("volumes", []):
                    source = volume.split(":")[0]
                    if source.startswith("."):
                        self.assertTrue((ROOT / source).exists(), source)
                    else:
                        self.assertIn(source, document["volumes"])

    def test_ports_are_published_on_loopback_and_never_admin(self):
        for name, service in compose()["services"].items():
            for port in service.get("ports", []):
                self.assertRegex(port, r"^127\.0\.0\.1:", name)
                self.assertFalse(port.endswith(":8501"), "Admin")

    def test_trainer_reads_a_recipe_that_ships(self):
        trainer = compose()["services"]["trainer"]
        recipe, model, admin = trainer["command"]
        self.assertTrue((ROOT / "training/recipes" / pathlib.PurePath(recipe).name).is_file(), recipe)
        self.assertTrue((ROOT / "models" / model).is_dir(), model)
        self.assertEqual(admin, "daemon:8501")


    def test_a_volume_with_lost_and_found_is_filled_once(self):
        # The shell lines of the service on folders, without the change of owner.
        line = compose()["services"]["models"]["command"][0].replace("$$", "$")
        with tempfile.TemporaryDirectory() as scratch:
            committed, volume = pathlib.Path(scratch, "committed"), pathlib.Path(scratch, "volume")
            for folder in (committed / "moons", volume / "lost+found"):
                folder.mkdir(parents=True)
            (committed / "moons/model.json").write_text("{}")
            line = line.replace("/models", str(volume)).replace("/committed", str(committed))
            line = re.sub(r"chown [^;]*;", "", line)
            subprocess.run(["/bin/sh", "-ec", line], check=True)
            self.assertTrue((volume / "moons/model.json").is_file())
            (volume / "moons/model.json").write_text("changed since")
            subprocess.run(["/bin/sh", "-ec", line], check=True)
            self.assertEqual((volume / "moons/model.json").read_text(), "changed since")

    def test_the_gpu_has_a_profile_of_its_own(self):
        services = compose()["services"]
        gpu, cpu = services["daemon-gpu"], services["daemon"]
        self.assertEqual(gpu["profiles"], ["gpu"])
        self.assertEqual(gpu["command"], cpu["command"])
        self.assertNotEqual(gpu["image"], cpu["image"])
        devices = gpu["deploy"]["resources"]["reservations"]["devices"]
        self.assertEqual((devices[0]["driver"], devices[0]["capabilities"]), ("nvidia", ["gpu"]))
        (argument, value), = gpu["build"]["args"].items()
        lines = DOCKERFILE.read_text()
        self.assertIn(f"ARG {argument}=cpu", lines)
        self.assertIn(f"HYPERSERVE_DEVICE=${argument} ", lines)
        self.assertIn(value, ("cpu", "cuda"))

    def test_the_daemon_is_not_process_1(self):
        self.assertTrue(compose()["services"]["daemon"]["init"])
        entry = json.loads(dict(instructions())["ENTRYPOINT"])
        self.assertEqual(entry[0], "tini")
        self.assertIn(" tini ", DOCKERFILE.read_text().split("apt-get install")[-1])


class DockerfileTest(unittest.TestCase):
    def test_copies_what_is_there(self):
        for name, arguments in instructions():
            if name == "COPY" and not arguments.startswith("--from"):
                for source in arguments.split()[:-1]:
                    self.assertTrue((ROOT / source).exists(), source)

    def test_runs_as_a_user_with_a_health_check(self):
        names = [name for name, _ in instructions()]
        last_stage = names[len(names) - names[::-1].index("FROM"):]
        for wanted in ("USER", "HEALTHCHECK", "ENTRYPOINT", "CMD"):
            self.assertIn(wanted, last_stage)

    @unittest.skipUnless("BIN_DIR" in os.environ, "the programs are not built in this configuration")
    def test_flags_are_those_of_the_programs(self):
        lines = dict(instructions())
        health = json.loads(lines["HEALTHCHECK"].split("CMD")[1])
        refresh = (ROOT / "deploy/docker/refresh.sh").read_text()
        train, publish = (re.findall(rf"{program} .*", refresh) for program in
                          ("hyperserve-train hypersolver", "hyperserve-client publish"))
        daemon = json.loads(lines["CMD"]) + compose()["services"]["daemon"]["command"]
        for command, words in {("hyperserve",): daemon, ("hyperserve-client", "health"): health,
                               ("hyperserve-train", "hypersolver"): train, ("hyperserve-client", "publish"): publish}.items():
            used = set(FLAG.findall(" ".join(words)))
            self.assertTrue(used)
            self.assertLessEqual(used, flags_of(*command), command)


class PrometheusTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("promtool"), "promtool is not in PATH")
    def test_promtool_reads_it(self):
        run = subprocess.run(["promtool", "check", "config", PROMETHEUS], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not in PATH")
    def test_each_alert_rings_at_its_fault_and_not_before_or_for_ever(self):
        up = 'instance="a", job="hyperserve"'
        call = 'instance="a", call="Sample", model="m", plan="p"'
        slow = 'instance="a", model="m"'
        cases = {  # series that begin with the fault at 20 min, and the labels of the alert
            "HyperserveDown": ({f"up{{{up}}}": "1x79 0x60 1x200"}, {"job": "hyperserve"}),
            "HyperserveSheds": ({f'hyperserve_requests_total{{{call}, code="RESOURCE_EXHAUSTED"}}': "0x79 0+9x60 540x200"}, {}),
            # These two begin with the series itself, which then stays as it is.
            "HyperserveFails": ({f'hyperserve_requests_total{{{call}, code="INTERNAL"}}': "_x79 1x240"}, {"call": "Sample"}),
            "HyperserveCandidateRefused": (
                {'hyperserve_publish_results_total{instance="a", model="m", method="heun", result="refused"}': "_x79 1x240"},
                {"model": "m", "method": "heun"}),
            "HyperserveRowsFail": (
                {f'hyperserve_rows_total{{{call}, status="converged"}}': "0+90x319",
                 f'hyperserve_rows_total{{{call}, status="non_finite"}}': "0x79 0+9x60 540x200"},
                {"model": "m", "plan": "p"}),
            "HyperserveModelProblem": ({'hyperserve_model_problems{instance="a", model="m"}': "0x79 1x60 0x200"}, {"model": "m"}),
            "HyperserveSlow": (
                {f'hyperserve_request_duration_seconds_bucket{{{slow}, le="0.842"}}': "0+9x79 720x60 720+9x200",
                 f'hyperserve_request_duration_seconds_bucket{{{slow}, le="2.84"}}': "0+9x79 720+9x60 1260+9x200",
                 f'hyperserve_request_duration_seconds_bucket{{{slow}, le="+Inf"}}': "0+9x79 720+9x60 1260+9x200"},
                {"model": "m"}),
            "HyperserveMemory": (
                {f"process_resident_memory_bytes{{{up}}}": "10x79 95x60 10x200", f"hyperserve_memory_max_bytes{{{up}}}": "100x319"}, {}),
            "HyperserveDeviceMemory": (
                {'hyperserve_device_memory_used_bytes{instance="a", device="cuda:0"}': "10x79 99x60 10x200",
                 'hyperserve_device_memory_bytes{instance="a", device="cuda:0"}': "100x319"}, {"device": "cuda:0"}),
        }
        rules = {rule["alert"]: rule for group in yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
                 for rule in group["rules"]}
        self.assertEqual(set(cases), set(rules))
        tests = []
        for name, (series, labels) in cases.items():
            rule = rules[name]
            self.assertIn(rule["labels"]["severity"], ("critical", "warning"), name)
            summary = rule["annotations"]["summary"]
            for label, value in {"instance": "a", **labels}.items():
                summary = summary.replace("{{ $labels.%s }}" % label, value)
            found = {"exp_labels": {"instance": "a", "severity": rule["labels"]["severity"], **labels},
                     "exp_annotations": {"summary": summary}}
            late = "21m" if "for" not in rule else "33m"
            tests.append({"interval": "15s", "input_series": [{"series": key, "values": text} for key, text in series.items()],
                          "alert_rule_test": [{"eval_time": when, "alertname": name, "exp_alerts": alerts}
                                              for when, alerts in (("19m", []), (late, [found]), ("70m", []))]})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "alerts_test.yml"
            path.write_text(yaml.safe_dump({"rule_files": [str(ROOT / "deploy/prometheus/alerts.yml")],
                                            "evaluation_interval": "15s", "tests": tests}))
            run = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_scrapes_the_daemon_where_it_serves_metrics(self):
        jobs = yaml.safe_load(PROMETHEUS.read_text())["scrape_configs"]
        self.assertEqual(jobs[0]["static_configs"][0]["targets"], ["daemon:8502"])
        self.assertIn("--http_address=0.0.0.0:8502", compose()["services"]["daemon"]["command"])

    def test_alerts_use_metrics_that_exist(self):
        families = set(re.findall(r'"((?:hyperserve|process)_\w+)"', (ROOT / "server/metrics/families.h").read_text()))
        self.assertGreater(len(families), 20)
        for group in yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]:
            for rule in group["rules"]:
                for metric in re.findall(r"(?:hyperserve|process)_\w+", rule["expr"]):
                    self.assertIn(re.sub(r"_(count|sum|bucket)$", "", metric), families)


if __name__ == "__main__":
    unittest.main()
