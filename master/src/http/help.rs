//! What a master serves beside the common pages, for `/help` (SPEC 3.9).

/// Each path with a sentence.
pub const HELP: ::http::Help = &[
    (
        "/state",
        "Agents, frameworks, tasks and offers: all that the master knows.",
    ),
    (
        "/state-summary",
        "Agents and frameworks with how many tasks they have in each state.",
    ),
    (
        "/slaves",
        "The agents, with all their resources, or one: `?slave_id=`.",
    ),
    (
        "/frameworks",
        "The frameworks, with their tasks, executors and offers, or one: `?framework_id=`.",
    ),
    (
        "/tasks",
        "Tasks: `?limit=100&offset=0&order=asc|des&framework_id=&task_id=`.",
    ),
    (
        "/files/debug",
        "The files that are shown: a master has none.",
    ),
    (
        "/roles",
        "The roles: weight, quota, and what they are allocated, offered and have reserved.",
    ),
    ("/weights", "GET or PUT: the weights of roles."),
    (
        "/quota",
        "GET, POST or PUT: the quotas of roles; DELETE `/quota/ROLE` takes one away.",
    ),
    ("/flags", "The flags that the master was started with."),
    ("/redirect", "307 to the master that leads."),
    (
        "/explain",
        "Why a framework is offered nothing: `?framework=ID or name&role=&agent=`.",
    ),
    (
        "/allocator/offer_constraints_debug",
        "Which agents offer constraints keep from which framework: `?framework=ID or name`.",
    ),
    (
        "/maintenance/schedule",
        "GET or POST: when which machines will be away.",
    ),
    (
        "/maintenance/status",
        "Which machines are draining or down, and what frameworks have answered.",
    ),
    ("/machine/down", "POST: these machines are away."),
    ("/machine/up", "POST: these machines are back."),
    (
        "/reserve",
        "POST `slaveId` and `resources`: reserve them on that agent.",
    ),
    (
        "/unreserve",
        "POST `slaveId` and `resources`: reserve them no more.",
    ),
    (
        "/create-volumes",
        "POST `slaveId` and `volumes`: make persistent volumes.",
    ),
    (
        "/destroy-volumes",
        "POST `slaveId` and `volumes`: destroy persistent volumes with what is in them.",
    ),
    (
        "/teardown",
        "POST `frameworkId`: end a framework with all its tasks.",
    ),
    ("/api/v1", "POST: the v1 operator API."),
    ("/api/v1/scheduler", "POST: the v1 scheduler API."),
];
