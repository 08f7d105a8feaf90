//! What an agent serves beside the common pages, for `/help` (SPEC 3.9, 5.11).

/// Each path with a sentence.
pub const HELP: ::http::Help = &[
    (
        "/state",
        "Frameworks, executors and tasks here, also those that are over: all that the agent knows.",
    ),
    ("/flags", "The flags that the agent was started with."),
    ("/containers", "The containers, with what they use."),
    (
        "/monitor/statistics",
        "What was measured of each executor last.",
    ),
    (
        "/files/browse",
        "`?path=`: what is in a directory of a sandbox.",
    ),
    (
        "/files/read",
        "`?path=&offset=&length=`: a piece of a file in a sandbox, as JSON.",
    ),
    ("/files/download", "`?path=`: a file in a sandbox."),
    (
        "/files/debug",
        "The sandboxes, by the names under which they are found.",
    ),
    (
        "/containerizer/debug",
        "What is pending in the containerizer: nothing ever is.",
    ),
    ("/api/v1", "POST: the v1 operator API."),
    ("/api/v1/executor", "POST: the v1 executor API."),
];
