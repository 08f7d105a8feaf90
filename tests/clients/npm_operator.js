// The operator client @dcos/mesos-client (npm), unchanged, against a Meros master: npm_operator.js HOST:PORT.
// It is made for browsers, so jsdom is the browser: a page of the master itself. Prints `ok STEP` for each step that holds.
"use strict";

const { JSDOM } = require("jsdom");

const PATIENCE = 60_000;
const master = "http://" + process.argv[2];
const page = new JSDOM("", { url: master + "/" });
global.window = page.window;
global.XMLHttpRequest = page.window.XMLHttpRequest;
const { request, stream } = require("@dcos/mesos-client");

const done = (step) => console.log("ok " + step);
const fail = (problem) => {
    console.error(problem);
    process.exit(1);
};
setTimeout(() => fail("not done in time"), PATIENCE).unref();

const ask = (type) => new Promise((answer, refuse) => request({ type }, master + "/api/v1").subscribe(answer, refuse));
const seen = new Set();
const step = (name) => {
    if (!seen.has(name)) done(name);
    seen.add(name);
};

async function questions() {
    for (const type of ["GET_HEALTH", "GET_VERSION", "GET_AGENTS", "GET_FLAGS"]) {
        const answer = JSON.parse(await ask(type));
        if (answer.type !== type || !answer[type.toLowerCase()]) fail(answer);
    }
    step("questions");
    stream({ type: "SUBSCRIBE" }, master + "/api/v1").subscribe(heard, fail);
}

function heard(text) {
    const event = JSON.parse(text);
    if (event.type === "SUBSCRIBED" && event.subscribed.get_state.get_agents) step("subscribed");
    if (event.type === "HEARTBEAT") step("heartbeat");
    if (event.type === "TASK_ADDED") step("task_added");
    if (event.type === "FRAMEWORK_REMOVED") {
        step("framework_removed");
        process.exit(0);
    }
}

questions().catch(fail);
