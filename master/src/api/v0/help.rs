//! A master's endpoints besides the common ones, for `/help`.

/// Paths with descriptions.
pub const HELP: ::http::Help = &[
    (
        "/state",
        "The whole state: agents, frameworks, tasks and offers.",
    ),
    (
        "/state-summary",
        "Agents and frameworks with their numbers of tasks by state.",
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
    ("/files/debug", "Published files: a master has none."),
    (
        "/roles",
        "Roles: weight, quota, allocated, offered and reserved resources.",
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
        "Why a framework gets no offers: `?framework=ID or name&role=&agent=`.",
    ),
    (
        "/allocator/offer_constraints_debug",
        "Agents that offer constraints exclude, by framework: `?framework=ID or name`.",
    ),
    (
        "/maintenance/schedule",
        "GET or POST: the maintenance schedule.",
    ),
    (
        "/maintenance/status",
        "Draining and down machines, and answers of frameworks.",
    ),
    ("/machine/down", "POST: mark machines as down."),
    ("/machine/up", "POST: mark machines as up."),
    (
        "/reserve",
        "POST `slaveId` and `resources`: reserve them on that agent.",
    ),
    (
        "/unreserve",
        "POST `slaveId` and `resources`: unreserve them.",
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
