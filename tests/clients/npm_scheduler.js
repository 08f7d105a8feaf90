// A scheduler of mesos-framework (npm), unchanged, against a Meros master: npm_scheduler.js HOST PORT LOG_DIRECTORY.
// Prints `ok STEP` for each step that holds, and ends with an error at the first that does not.
"use strict";

const { Scheduler, Mesos } = require("mesos-framework");

const TIMEOUT = 60_000;
const [host, port, logs] = process.argv.slice(2);
const mesos = Mesos.getMesos();
const done = (step) => console.log("ok " + step);
const fail = (problem) => {
    console.error(problem);
    process.exit(1);
};

const command = (line) => new mesos.CommandInfo(null, null, true, line, null, null);
const resources = { cpus: 0.1, mem: 32, ports: 1, disk: 0 };
const scheduler = new Scheduler({
    masterUrl: host,
    port: Number(port),
    frameworkName: "npm framework",
    // A silence of this many seconds counts as a loss of the master.
    masterConnectionTimeout: 60,
    logging: { path: logs, fileName: "scheduler.log", level: "error" },
    tasks: {
        quick: { priority: 1, instances: 1, commandInfo: command("test -n \"$HOST\""), resources },
        long: { priority: 2, instances: 1, commandInfo: command("sleep 10000"), resources },
    },
});

const states = new Set();
setTimeout(() => fail("not done in time"), TIMEOUT).unref();
scheduler.on("ready", () => scheduler.subscribe());
// The master ends the event stream at a teardown, before or after the answer to the call arrives.
let leaving = false;
scheduler.on("error", (error) => leaving || fail(error.message || error));
scheduler.once("subscribed", ({ frameworkId, mesosStreamId }) => {
    if (!frameworkId || !mesosStreamId) fail("no framework id or stream");
    done("subscribe");
});
scheduler.once("offers", () => done("offers"));
scheduler.on("update", ({ status }) => {
    const [name] = status.task_id.value.split(".")[1].split("-");
    states.add(name + " " + status.state);
    if (status.state === "TASK_KILLED") {
        done("kill");
        scheduler.once("sent_teardown", () => {
            done("teardown");
            process.exit(0);
        });
        leaving = true;
        scheduler.teardown();
    } else if (states.has("quick TASK_FINISHED") && states.has("long TASK_RUNNING") && !states.has("killed")) {
        done("launch");
        states.add("killed");
        const long = scheduler.launchedTasks.find((task) => task.name.startsWith("long"));
        scheduler.kill(long.taskId, long.runtimeInfo.agentId);
    }
});
