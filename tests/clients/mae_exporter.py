"""The exporter mae (metrics of tasks for Prometheus), unchanged, against a Meros agent: mae_exporter.py HOST PORT TEXT.

Prints `ok STEP` for each step that holds. A task of the agent serves TEXT at the first port of its discovery.
"""

import sys
import time

from mae.mae import MesosAppExporter

from story import PATIENCE, done


def main():
    host, port, text = sys.argv[1:]
    exporter = MesosAppExporter(host, int(port))
    state = exporter.get_mesos_slave_state()
    assert state["type"] == "GET_TASKS", state
    done("tasks")
    endpoints = exporter.get_app_metrics_endpoints(state)
    assert len(endpoints) == 1, endpoints
    done("endpoints")
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            collected = exporter.collect()
            break
        except Exception as error:
            # The task runs before its server listens.
            assert time.monotonic() < deadline, error
            time.sleep(0.1)
    assert text in collected, collected
    done("metrics")


main()
