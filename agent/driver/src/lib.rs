//! What an executor links: an actor that receives tasks and reports their states.
