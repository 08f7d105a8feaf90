"""A scheduler of pymesos, unchanged, against a Meros master: pymesos_scheduler.py HOST:PORT [EXECUTOR_SCRIPT].

Prints `ok STEP` for each step that holds, and ends with an error at the first that does not.
"""

import base64
import json
import sys
import time
import urllib.request

from pymesos import MesosSchedulerDriver, Scheduler

from story import PATIENCE, Story, done

DECLINED_FOR = {"refuse_seconds": 1}


class Recorder(Scheduler):
    """Tells the story what the master says."""

    def __init__(self, story):
        self.story = story

    def registered(self, driver, framework_id, master_info):
        self.story.tell("registered", framework_id["value"])

    def resourceOffers(self, driver, offers):
        self.story.tell("offers", offers)

    def statusUpdate(self, driver, status):
        self.story.tell("status", status)

    def frameworkMessage(self, driver, executor_id, agent_id, data):
        self.story.tell("message", base64.b64decode(data))

    def error(self, driver, message):
        self.story.tell("error", message)


def scalar(name, value):
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}}


def task(name, offer, **what):
    return dict(
        name=name,
        task_id={"value": name},
        agent_id=offer["agent_id"],
        resources=[scalar("cpus", 0.1), scalar("mem", 32)],
        **what
    )


def command(name, offer, line):
    return task(name, offer, command={"shell": True, "value": line})


def cpus(offer):
    return sum(resource["scalar"]["value"] for resource in offer["resources"] if resource["name"] == "cpus")


def roomy_offer(story, driver):
    """An offer that is more than what one task left; the others are declined for now."""
    while True:
        roomy = None
        for offer in story.wait("offers"):
            if roomy is None and cpus(offer) >= 0.5:
                roomy = offer
            else:
                driver.declineOffer(offer["id"], {"refuse_seconds": 0})
        if roomy is not None:
            return roomy


def status_of(name, state):
    return lambda status: status["task_id"]["value"] == name and status["state"] == state


def page(master, path):
    with urllib.request.urlopen("http://%s%s" % (master, path), timeout=PATIENCE) as answer:
        return json.load(answer)


def heard(story, driver, name):
    """Until the master has answered all that was said to it before: it answers in the order in which it hears."""
    driver.reconcileTasks([{"task_id": {"value": name}}])
    story.wait("status", lambda status: status["task_id"]["value"] == name)


def runs_of_allocator(master, count):
    """Until the allocator has gone so often more through all that is free."""
    runs = lambda: page(master, "/metrics/snapshot")["allocator/mesos/allocation_runs"]
    begun, deadline = runs(), time.monotonic() + PATIENCE
    while runs() < begun + count:
        assert time.monotonic() < deadline, "the allocator runs"
        time.sleep(0.1)


def main():
    master = sys.argv[1]
    story = Story()
    framework = {
        "user": "root",
        "name": "pymesos",
        "roles": ["pymesos"],
        "capabilities": [{"type": "MULTI_ROLE"}],
        "failover_timeout": 60,
    }
    driver = MesosSchedulerDriver(Recorder(story), framework, master)
    driver.start()
    framework_id = story.wait("registered")
    assert framework_id, "the framework has an id"
    done("subscribe")

    offer = story.wait("offers")[0]
    assert offer["allocation_info"]["role"] == "pymesos", offer
    assert any(resource["name"] == "cpus" for resource in offer["resources"]), offer
    driver.launchTasks(offer["id"], [command("quick", offer, "exit 0"), command("long", offer, "sleep 10000")], DECLINED_FOR)
    story.wait("status", status_of("quick", "TASK_FINISHED"))
    running = story.wait("status", status_of("long", "TASK_RUNNING"))
    assert running["agent_id"] == offer["agent_id"], running
    done("launch")

    driver.reconcileTasks([{"task_id": {"value": "long"}}, {"task_id": {"value": "never"}}])
    again = story.wait("status", lambda status: status.get("reason") == "REASON_RECONCILIATION" and status_of("long", "TASK_RUNNING")(status))
    assert "uuid" not in again, "an answer to a reconciliation is not acknowledged"
    story.wait("status", lambda status: status["task_id"]["value"] == "never" and status["state"] in ("TASK_LOST", "TASK_UNKNOWN"))
    story.forget("status")
    driver.reconcileTasks([])
    story.wait("status", status_of("long", "TASK_RUNNING"))
    done("reconcile")

    driver.killTask({"value": "long"})
    story.wait("status", status_of("long", "TASK_KILLED"))
    done("kill")

    offer = roomy_offer(story, driver)
    driver.declineOffer(offer["id"], DECLINED_FOR)
    again = roomy_offer(story, driver)
    assert again["id"] != offer["id"], "an offer is made once"
    done("decline")

    # Given back without a filter, so that nothing but the suppression keeps the resources from it.
    driver.suppressOffers()
    heard(story, driver, "after-suppress")
    offers = [offer["id"] for offers in story.forget("offers") for offer in offers]
    driver.declineOffer(offers + [again["id"]], {"refuse_seconds": 0})
    heard(story, driver, "after-decline")
    runs_of_allocator(master, 3)
    heard(story, driver, "after-runs")
    assert not story.forget("offers"), "none comes while they are suppressed"
    agent = page(master, "/slaves")["slaves"][0]
    assert agent["used_resources"]["cpus"] == agent["offered_resources"]["cpus"] == 0, agent
    done("suppress")

    driver.reviveOffers()
    offer = roomy_offer(story, driver)
    done("revive")

    if len(sys.argv) > 2:
        script = sys.argv[2]
        executor = {
            "executor_id": {"value": "custom"},
            "type": "CUSTOM",
            "name": "custom",
            "framework_id": {"value": framework_id},
            "command": {"shell": False, "value": sys.executable, "arguments": [sys.executable, script]},
            "resources": [scalar("cpus", 0.1), scalar("mem", 64)],
        }
        driver.launchTasks(offer["id"], [task("of-custom", offer, executor=executor, data=base64.b64encode(b"7 * 6").decode())], DECLINED_FOR)
        story.wait("status", status_of("of-custom", "TASK_RUNNING"))
        assert story.wait("message") == b"registered"
        driver.sendFrameworkMessage({"value": "custom"}, offer["agent_id"], base64.b64encode(b"are you there?").decode())
        assert story.wait("message") == b"are you there? yes"
        finished = story.wait("status", status_of("of-custom", "TASK_FINISHED"))
        assert base64.b64decode(finished["data"]) == b"42", finished
        done("custom executor")

    driver.stop()
    driver.join()
    done("teardown")


main()
