"""A scheduler of mesoshttp, unchanged, against a Meros master: mesoshttp_scheduler.py HOST:PORT.

Prints `ok STEP` for each step that holds, and ends with an error at the first that does not. The library hands on an event when the
next one begins.
"""

import sys
import threading

from mesoshttp.client import MesosClient

from story import Story, done


def scalar(name, value):
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}}


def command(name, offer, line):
    return {
        "name": name,
        "task_id": {"value": name},
        "agent_id": {"value": offer["agent_id"]["value"]},
        "resources": [scalar("cpus", 0.1), scalar("mem", 32)],
        "command": {"shell": True, "value": line},
    }


def state_of(name, state):
    of_task = lambda status: status["task_id"]["value"] == name and status["state"] == state
    return lambda update: of_task(update["status"])


def main():
    story = Story()
    client = MesosClient(mesos_urls=["http://" + sys.argv[1]], frameworkName="mesoshttp", max_reconnect=1)
    client.set_role("mesoshttp")
    client.set_failover_timeout(60)
    events = [
        (MesosClient.SUBSCRIBED, "subscribed"),
        (MesosClient.OFFERS, "offers"),
        (MesosClient.UPDATE, "update"),
        (MesosClient.ERROR, "error"),
    ]
    for event, kind in events:
        # It logs the name of each callback.
        def callback(value, kind=kind):
            story.tell(kind, value)

        client.on(event, callback)
    reading = threading.Thread(target=client.register, daemon=True)
    reading.start()

    driver = story.wait("subscribed")
    assert client.frameworkId and client.streamId, "the framework has an id and a stream"
    assert client.get_master_info()["port"], client.get_master_info()
    done("subscribe")

    offer = story.wait("offers")[0]
    given = offer.get_offer()
    tasks = [command("quick", given, "exit 0"), command("long", given, "sleep 10000")]
    offer.accept(tasks, {"filters": {"refuse_seconds": 0}})
    story.wait("update", state_of("quick", "TASK_FINISHED"))
    running = story.wait("update", state_of("long", "TASK_RUNNING"))
    assert running["status"]["agent_id"] == given["agent_id"], running
    done("launch")

    driver.reconcile([{"task_id": {"value": "long"}}, {"task_id": {"value": "never"}}])
    is_answer = lambda update: update["status"].get("reason") == "REASON_RECONCILIATION"
    story.wait("update", lambda update: is_answer(update) and state_of("long", "TASK_RUNNING")(update))
    story.wait("update", lambda update: update["status"]["task_id"]["value"] == "never")
    done("reconcile")

    driver.kill(given["agent_id"]["value"], "long")
    story.wait("update", state_of("long", "TASK_KILLED"))
    done("kill")

    for offer in story.wait("offers"):
        offer.decline({"filters": {"refuse_seconds": 1}})
    story.wait("offers")
    done("decline")

    driver.tearDown()
    client.tearDown()
    client.disconnect_framework()
    done("teardown")


main()
