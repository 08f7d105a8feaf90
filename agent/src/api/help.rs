//! The agent's endpoints, for `/help`.

/// Paths and descriptions.
pub const HELP: ::http::Help = &[
    (
        "/state",
        "Frameworks, executors and tasks, present and completed.",
    ),
    ("/flags", "The flags that the agent was started with."),
    ("/containers", "The containers and their resource usage."),
    (
        "/monitor/statistics",
        "The latest statistics of each executor.",
    ),
    (
        "/oversubscription",
        "Usage, slack, the estimate of lent resources, and the newest corrections.",
    ),
    ("/files/browse", "`?path=`: lists a directory of a sandbox."),
    (
        "/files/read",
        "`?path=&offset=&length=`: a piece of a file in a sandbox, as JSON.",
    ),
    ("/files/download", "`?path=`: a file in a sandbox."),
    ("/files/debug", "The paths of the sandboxes."),
    (
        "/containerizer/debug",
        "Pending operations of the containerizer: always none.",
    ),
    ("/api/v1", "POST: the v1 operator API."),
    ("/api/v1/executor", "POST: the v1 executor API."),
];
