//! The encoding under the digests: every field in fixed order; texts and lists have a length
//! prefix.
//!
//! It is never decoded and independent of the wire form, so a message can change without a change
//! of digests. The functions destructure their types completely: a new field does not compile until
//! someone decides whether it is part of the digest. A change of this encoding needs a new
//! [`super::FORM`].

use std::time::Duration;

use resources::{
    Annotations, DiskInfo, DiskSource, Labels as ResourceLabels, Persistence, Reservation,
    ReservationKind, Resource, Resources, Revocable, SourceKind, Value, Volume, VolumeMode,
};

use super::TaskContent;
use crate::task::{CommandInfo, ExecutorInfo, ExecutorKind, Labels, Uri};

/// Kind of an item.
pub(super) const TASK: u8 = 1;
/// Kind of an item.
pub(super) const EXECUTOR: u8 = 2;

/// Writes items, one after the other, into the same buffer.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// The bytes of the current item.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Starts a new item with its kind and name.
    pub(super) fn begin(&mut self, kind: u8, framework: &str, id: &str) {
        self.bytes.clear();
        self.byte(kind);
        self.text(framework);
        self.text(id);
    }

    pub(super) fn task(&mut self, sketch: TaskContent<'_>) {
        let TaskContent {
            name,
            executor_id,
            resources,
            labels,
            user,
            state,
        } = sketch;
        // By name: new states may be inserted into the enum.
        self.text(state.name());
        self.text(name);
        self.text(executor_id);
        self.resources(resources);
        self.labels(labels);
        self.optional(user, Self::text);
    }

    pub(super) fn executor(&mut self, info: &ExecutorInfo) {
        let ExecutorInfo {
            executor_id: _, // Part of the name.
            kind,
            name,
            command,
            resources,
            data,
            shutdown_grace_period,
            labels,
            container,
        } = info;
        self.text(name);
        self.command(command);
        self.resources(resources);
        self.data(data);
        self.optional(*shutdown_grace_period, Self::duration);
        self.labels(labels);
        // The last field, and rare: absent, it takes no byte. Secrets are in no checkpoint.
        if let Some(container) = container {
            let mut container = container.clone();
            container.remove_secrets();
            self.text(&serde_json::to_string(&container).unwrap_or_default());
        }
        if *kind == ExecutorKind::Default {
            self.byte(1);
        }
    }

    fn command(&mut self, command: &CommandInfo) {
        let CommandInfo {
            value,
            shell,
            arguments,
            environment,
            user,
            uris,
        } = command;
        self.text(value);
        self.byte(u8::from(*shell));
        self.length(arguments.len());
        arguments.iter().for_each(|argument| self.text(argument));
        self.labels(environment);
        self.optional(user.as_deref(), Self::text);
        self.length(uris.len());
        uris.iter().for_each(|uri| self.uri(uri));
    }

    fn uri(&mut self, uri: &Uri) {
        let Uri {
            value,
            executable,
            extract,
            cache,
            output_file,
            digest,
        } = uri;
        self.text(value);
        for flag in [*executable, *extract, *cache] {
            self.byte(u8::from(flag));
        }
        self.optional(output_file.as_deref(), Self::text);
        // Rare: absent, it takes no byte.
        if let Some(digest) = digest {
            self.text(digest);
        }
    }

    fn resources(&mut self, resources: &Resources) {
        self.length(resources.len());
        resources
            .iter()
            .for_each(|resource| self.resource(resource));
    }

    fn resource(&mut self, resource: &Resource) {
        self.text(resource.name_str());
        self.number(resource.copies().into());
        match resource.value() {
            Value::Scalar(amount) => {
                self.byte(0);
                self.bytes.extend(amount.thousandths().to_le_bytes());
            }
            Value::Ranges(ranges) => {
                self.byte(1);
                self.length(ranges.as_slice().len());
                for range in ranges.iter() {
                    self.number(range.begin());
                    self.number(range.end());
                }
            }
            Value::Set(set) => {
                self.byte(2);
                self.length(set.len());
                set.iter().for_each(|item| self.text(item));
            }
        }
        self.annotations(resource.annotations());
    }

    fn annotations(&mut self, annotations: &Annotations) {
        let Annotations {
            revocable,
            lender,
            allocation,
            reservations,
            disk,
            shared,
            provider,
        } = annotations;
        self.byte(match revocable {
            None => 0,
            Some(Revocable::NonThrottleable) => 1,
            Some(Revocable::Throttleable) => 2,
        });
        self.optional(lender.as_ref().map(|role| role.as_str()), Self::text);
        self.optional(allocation.as_ref().map(|role| role.as_str()), Self::text);
        self.length(reservations.len());
        for reservation in reservations {
            self.reservation(reservation);
        }
        self.optional(disk.as_deref(), Self::disk);
        self.byte(u8::from(*shared));
        self.optional(provider.as_deref(), Self::text);
    }

    fn reservation(&mut self, reservation: &Reservation) {
        let Reservation {
            kind,
            role,
            principal,
            labels,
        } = reservation;
        self.byte(match kind {
            ReservationKind::Static => 0,
            ReservationKind::Dynamic => 1,
        });
        self.text(role.as_str());
        self.optional(principal.as_deref(), Self::text);
        self.resource_labels(labels);
    }

    fn disk(&mut self, disk: &DiskInfo) {
        let DiskInfo {
            persistence,
            volume,
            source,
        } = disk;
        self.optional(persistence.as_ref(), |this, persistence: &Persistence| {
            let Persistence { id, principal } = persistence;
            this.text(id);
            this.optional(principal.as_deref(), Self::text);
        });
        self.optional(volume.as_ref(), |this, volume: &Volume| {
            let Volume {
                container_path,
                host_path,
                mode,
            } = volume;
            this.text(container_path);
            this.optional(host_path.as_deref(), Self::text);
            this.byte(match mode {
                VolumeMode::ReadWrite => 0,
                VolumeMode::ReadOnly => 1,
            });
        });
        self.optional(source.as_ref(), Self::disk_source);
    }

    fn disk_source(&mut self, source: &DiskSource) {
        let DiskSource {
            kind,
            root,
            vendor,
            id,
            metadata,
            profile,
        } = source;
        self.byte(match kind {
            SourceKind::Path => 0,
            SourceKind::Mount => 1,
            SourceKind::Block => 2,
            SourceKind::Raw => 3,
        });
        for text in [root, vendor, id] {
            self.optional(text.as_deref(), Self::text);
        }
        self.resource_labels(metadata);
        self.optional(profile.as_deref(), Self::text);
    }

    fn labels(&mut self, labels: &Labels) {
        self.length(labels.len());
        for (key, value) in labels {
            self.text(key);
            self.text(value);
        }
    }

    fn resource_labels(&mut self, labels: &ResourceLabels) {
        self.length(labels.iter().len());
        for label in labels.iter() {
            self.text(&label.key);
            self.optional(label.value.as_deref(), Self::text);
        }
    }

    fn duration(&mut self, duration: Duration) {
        self.number(duration.as_secs());
        self.number(duration.subsec_nanos().into());
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn text(&mut self, text: &str) {
        self.data(text.as_bytes());
    }

    fn data(&mut self, data: &[u8]) {
        self.length(data.len());
        self.bytes.extend_from_slice(data);
    }

    fn length(&mut self, length: usize) {
        self.bytes.extend((length as u32).to_le_bytes());
    }

    fn number(&mut self, number: u64) {
        self.bytes.extend(number.to_le_bytes());
    }

    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }
}
