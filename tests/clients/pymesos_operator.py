"""An operator of pymesos, unchanged, against a Meros master: pymesos_operator.py HOST:PORT.

Prints `ok subscribed` once it has the stream, then `ok EVENT` for each kind of event once, and ends when it has heard of a task from
its beginning to its end and of a framework that came and went.
"""

import sys

from pymesos import MesosOperatorMasterDriver, OperatorMaster

from story import Story, done


class Recorder(OperatorMaster):
    """Tells the story what the master says."""

    def __init__(self, story):
        self.story = story

    def taskAdded(self, event):
        self.story.tell("task_added", event)

    def taskUpdated(self, event):
        self.story.tell("task_updated", event)

    def frameworkAdded(self, event):
        self.story.tell("framework_added", event)

    def frameworkUpdated(self, event):
        self.story.tell("framework_updated", event)

    def frameworkRemoved(self, event):
        self.story.tell("framework_removed", event)

    def agentAdded(self, event):
        self.story.tell("agent_added", event)

    def agentRemoved(self, event):
        self.story.tell("agent_removed", event)


class Driver(MesosOperatorMasterDriver):
    """Says when the stream has begun."""

    def on_subscribed(self, info):
        super().on_subscribed(info)
        self.operator.story.tell("subscribed", info)


def main():
    master = sys.argv[1]
    story = Story()
    driver = Driver(master, Recorder(story))
    driver.start()
    snapshot = story.wait("subscribed")["get_state"]
    assert "get_agents" in snapshot and "get_frameworks" in snapshot, snapshot
    done("subscribed")

    framework = story.wait("framework_added")
    name = framework["framework_info"]["name"]
    done("framework_added")
    added = story.wait("task_added")
    assert added["state"] == "TASK_STAGING", added
    done("task_added")
    of_task = lambda event: event["status"]["task_id"] == added["task_id"]
    story.wait("task_updated", lambda event: of_task(event) and event["status"]["state"] == "TASK_RUNNING")
    story.wait("task_updated", lambda event: of_task(event) and event["status"]["state"] == "TASK_FINISHED")
    done("task_updated")
    assert story.wait("framework_removed")["name"] == name
    done("framework_removed")
    driver.stop()

    # Questions on connections of their own.
    asked = MesosOperatorMasterDriver(master)
    assert asked.getHealth()["get_health"]["healthy"] is True
    assert asked.getVersion()["get_version"]["version_info"]["version"] == "1.11.0"
    assert len(asked.getAgents()["get_agents"]["agents"]) == 1
    assert any(flag["name"] == "work_dir" for flag in asked.getFlags()["get_flags"]["flags"])
    done("questions")
    asked.updateWeights([{"role": "pymesos", "weight": 2.5}])
    weights = asked.getWeights()["get_weights"]["weight_infos"]
    assert {"role": "pymesos", "weight": 2.5} in weights, weights
    done("weights")


main()
