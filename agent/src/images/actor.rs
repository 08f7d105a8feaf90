//! The actor of images: owns their names and uses, and starts pulls.
//!
//! Handles [`GetImage`], [`AbandonImage`], [`HoldImages`], [`ReleaseImages`], [`ListImages`] and
//! [`PruneImages`], and its timer for removals. One pull serves all that wait for the same image
//! with the same credentials; it ends when none waits any more. It removes nothing before it knows
//! the images of containers that an earlier agent process has started.

use std::collections::{BTreeMap, BTreeSet};

use protocol::ContainerId;
use runtime::Timestamp;
use runtime::prelude::*;
use tokio::sync::oneshot;

use super::pull::{PullResult, Pulls};
use super::reference::Reference;
use super::retention::{KeptImage, removable};
use super::store::{Contents, Index};
use super::unpacker::UnpackedImage;
use super::{GetOptions, Image, ImageSummary};
use crate::fetcher::digest::Digest;

/// Most names. An image of one more is pulled again at each use, without its parts.
const NAMES_MAX: usize = 10_000;

/// Requests an image for a container, which holds it from then on.
#[derive(Message)]
#[rtype(result = "()")]
pub struct GetImage {
    /// The container.
    pub container: ContainerId,
    /// The name.
    pub reference: Reference,
    /// How it is found.
    pub options: GetOptions,
    /// The number of this request, to abandon it.
    pub request: u64,
    /// Receives the image. Dropped with the actor.
    pub reply: oneshot::Sender<Result<Image, String>>,
}

/// A request is no longer of interest.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct AbandonImage {
    /// Its number.
    pub request: u64,
}

/// The images that containers of an earlier agent process use; `None` if that is not known: it may
/// be any. Sent once.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct HoldImages(pub Vec<(ContainerId, Option<Digest>)>);

/// A container has ended and needs none of its images.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct ReleaseImages(pub ContainerId);

/// Requests the images of the store.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Vec<ImageSummary>")]
pub struct ListImages;

/// Removes all images that no container uses, except those with these names. Answers with the
/// removed ones.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Result<Vec<Digest>, String>")]
pub struct PruneImages {
    /// Names of images that stay.
    pub excluded: Vec<String>,
}

/// What one pull serves: a name, and the credentials for it.
type PullKey = (Reference, Option<String>);

/// A request that waits for a pull.
struct Waiter {
    container: ContainerId,
    request: u64,
    reply: oneshot::Sender<Result<Image, String>>,
}

/// A running pull.
struct RunningPull {
    waiters: Vec<Waiter>,
    /// Dropped when no request waits.
    cancel: Option<oneshot::Sender<()>>,
}

/// An image of the store.
struct Entry {
    image: UnpackedImage,
    last_used: Timestamp,
    users: BTreeSet<ContainerId>,
}

/// The actor of images.
pub struct ImageStore {
    pulls: Pulls,
    images: BTreeMap<Digest, Entry>,
    /// Those without a description, until it is known which of them are used.
    damaged: Vec<Digest>,
    names: BTreeMap<Reference, Digest>,
    running: BTreeMap<PullKey, RunningPull>,
    /// Whether the images of earlier containers are known.
    is_recovered: bool,
    /// Whether the index is being written, and whether it has changed since.
    is_writing: bool,
    is_dirty: bool,
}

impl ImageStore {
    /// Begins with the content of the store at time `now`.
    pub fn new(pulls: Pulls, contents: Contents, now: Timestamp) -> Self {
        let Contents {
            images,
            damaged,
            index,
        } = contents;
        let last_used = |digest: &Digest| index.last_used.get(digest).copied();
        let entry = |image: UnpackedImage| {
            let digest = image.config.digest.clone();
            let last_used = last_used(&digest)
                .map_or(now, Timestamp::from_nanos)
                .min(now);
            let users = BTreeSet::new();
            let entry = Entry {
                image,
                last_used,
                users,
            };
            (digest, entry)
        };
        let images: BTreeMap<Digest, Entry> = images.into_iter().map(entry).collect();
        let mut names = index.names;
        names.retain(|_, digest| images.contains_key(digest));
        Self {
            pulls,
            images,
            damaged,
            names,
            running: BTreeMap::new(),
            is_recovered: false,
            is_writing: false,
            is_dirty: false,
        }
    }

    fn get(&mut self, message: GetImage, ctx: &mut Context<Self>) {
        let GetImage {
            container,
            reference,
            options,
            request,
            reply,
        } = message;
        let waiter = Waiter {
            container,
            request,
            reply,
        };
        let name = reference.complete();
        if let Some(digest) = self.names.get(&name).filter(|_| options.cached) {
            let digest = digest.clone();
            return self.answer(vec![waiter], &digest, ctx);
        }
        let key = (name, options.credentials.clone());
        if let Some(running) = self.running.get_mut(&key) {
            return running.waiters.push(waiter);
        }
        self.pull(reference, key, vec![waiter], ctx);
    }

    fn pull(
        &mut self,
        reference: Reference,
        key: PullKey,
        waiters: Vec<Waiter>,
        ctx: &mut Context<Self>,
    ) {
        let (cancel, cancelled) = oneshot::channel();
        let cancel = Some(cancel);
        self.running
            .insert(key.clone(), RunningPull { waiters, cancel });
        let known = self.images.keys().cloned().collect();
        let (pulls, node) = (self.pulls.clone(), ctx.node().clone());
        tracing::info!(image = %reference, "pulling an image");
        let pulling = pulls.pull(node, (reference.clone(), key.1.clone()), known, cancelled);
        ctx.then(pulling, move |this, result, ctx| {
            this.pulled(reference, key, result, ctx);
        });
    }

    fn pulled(
        &mut self,
        reference: Reference,
        key: PullKey,
        result: Result<PullResult, String>,
        ctx: &mut Context<Self>,
    ) {
        let Some(RunningPull { waiters, cancel }) = self.running.remove(&key) else {
            return;
        };
        // Requests that came after the pull was cancelled wait for one of their own, and so do all
        // if the image that the pull has found was removed meanwhile.
        let is_repeated = match &result {
            Ok(PullResult::Known(digest)) => !self.images.contains_key(digest),
            // Another pull of it may have come first, and its image be doomed since.
            Ok(PullResult::New(image)) => !self.pulls.store.take_back(&image.config.digest),
            Err(_) => cancel.is_none(),
        };
        if is_repeated {
            if !waiters.is_empty() {
                self.pull(reference, key, waiters, ctx);
            }
            return;
        }
        let digest = match result {
            Ok(PullResult::Known(digest)) => digest,
            Ok(PullResult::New(image)) => {
                let digest = image.config.digest.clone();
                tracing::info!(image = %reference, %digest, size = ?image.size, "image unpacked");
                self.sync(digest.clone(), ctx);
                let now = ctx.clock().wall();
                self.images.entry(digest.clone()).or_insert_with(|| Entry {
                    image,
                    last_used: now,
                    users: BTreeSet::new(),
                });
                digest
            }
            Err(problem) => {
                tracing::warn!(image = %reference, problem, "image not pulled");
                for waiter in waiters {
                    let problem = format!("image `{reference}`: {problem}");
                    let _ = waiter.reply.send(Err(problem));
                }
                return;
            }
        };
        if self.names.len() < NAMES_MAX || self.names.contains_key(&key.0) {
            self.names.insert(key.0, digest.clone());
        }
        self.answer(waiters, &digest, ctx);
    }

    fn sync(&mut self, digest: Digest, ctx: &mut Context<Self>) {
        let (store, image) = (self.pulls.store.clone(), digest.clone());
        let syncing = ctx.node().blocking(move || store.sync(&image));
        ctx.then(syncing, move |this, synced, _| {
            // It may have been removed meanwhile.
            if let Ok(Err(error)) = synced
                && this.images.contains_key(&digest)
            {
                tracing::warn!(%digest, %error, "image not written to the disk");
            }
        });
    }

    /// Gives an image to these containers, which hold it.
    fn answer(&mut self, waiters: Vec<Waiter>, digest: &Digest, ctx: &mut Context<Self>) {
        if let Some(entry) = self.images.get_mut(digest) {
            entry.last_used = ctx.clock().wall();
            let image = Image {
                root: self.pulls.store.root_of(digest),
                config: entry.image.config.clone(),
            };
            for Waiter {
                container, reply, ..
            } in waiters
            {
                let is_new = entry.users.insert(container.clone());
                if reply.send(Ok(image.clone())).is_err() && is_new {
                    entry.users.remove(&container);
                }
            }
        }
        self.write_index(ctx);
    }

    fn write_index(&mut self, ctx: &mut Context<Self>) {
        if self.is_writing {
            self.is_dirty = true;
            return;
        }
        self.is_writing = true;
        let uses = { self.images.iter() }
            .map(|(digest, entry)| (digest.clone(), entry.last_used.as_nanos()));
        let index = Index {
            names: self.names.clone(),
            last_used: uses.collect(),
        };
        let store = self.pulls.store.clone();
        let writing = ctx.node().blocking(move || store.write_index(&index));
        ctx.then(writing, |this, written, ctx| {
            this.is_writing = false;
            if let Ok(Err(error)) = written {
                tracing::warn!(%error, "index of images not written");
            }
            if std::mem::take(&mut this.is_dirty) {
                this.write_index(ctx);
            }
        });
    }

    /// The images as the decision about removals sees them.
    fn kept(&self, excluded: &[String]) -> Vec<KeptImage> {
        let excluded = excluded
            .iter()
            .filter_map(|name| Reference::parse(name).ok());
        let excluded: BTreeSet<Reference> = excluded.map(|name| name.complete()).collect();
        let named = { self.names.iter() }.filter(|(name, _)| excluded.contains(name));
        let excluded: BTreeSet<&Digest> = named.map(|(_, digest)| digest).collect();
        let kept = |(digest, entry): (&Digest, &Entry)| KeptImage {
            digest: digest.clone(),
            bytes: entry.image.size.bytes,
            last_used: entry.last_used,
            must_stay: !entry.users.is_empty() || excluded.contains(digest),
        };
        self.images.iter().map(kept).collect()
    }

    fn check_retention(&mut self, ctx: &mut Context<Self>) {
        if !self.is_recovered {
            return;
        }
        let store = self.pulls.store.clone();
        let measuring = ctx.node().blocking(move || store.space());
        ctx.then(measuring, |this, measured, ctx| {
            let space = match measured {
                Ok(Ok(space)) => space,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "free space for images unknown");
                    return;
                }
                Err(_) => return,
            };
            let now = ctx.clock().wall();
            for entry in this.images.values_mut() {
                // The clock was ahead: else the image would stay until that time.
                entry.last_used = entry.last_used.min(now);
            }
            let policy = &this.pulls.settings.retention;
            let kept = this.kept(&policy.excluded);
            let removed = removable(kept, policy, space, now);
            if !removed.is_empty() {
                let removing = this.remove(removed, ctx.node());
                this.write_index(ctx);
                ctx.then(removing, |_, _, _| {});
            }
        });
    }

    /// Removes images, which are gone at once for all requests.
    fn remove(
        &mut self,
        removed: Vec<Digest>,
        node: &Node,
    ) -> impl Future<Output = Vec<Digest>> + use<> {
        for digest in &removed {
            tracing::info!(%digest, "removing an image");
            self.images.remove(digest);
            self.pulls.store.doom(digest);
        }
        let images = &self.images;
        self.names.retain(|_, digest| images.contains_key(digest));
        let store = self.pulls.store.clone();
        let removing = node.blocking(move || {
            for digest in &removed {
                if let Err(error) = store.remove(digest) {
                    tracing::warn!(%digest, %error, "image not removed");
                }
            }
            removed
        });
        async { removing.await.unwrap_or_default() }
    }
}

impl Actor for ImageStore {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if let Some(interval) = self.pulls.settings.retention.interval {
            ctx.every(interval, Self::check_retention);
        }
    }
}

impl Process for ImageStore {}

impl Handler<GetImage> for ImageStore {
    type Result = ();
    fn handle(&mut self, message: GetImage, ctx: &mut Context<Self>) {
        self.get(message, ctx);
    }
}

impl Handler<AbandonImage> for ImageStore {
    type Result = ();
    fn handle(&mut self, AbandonImage { request }: AbandonImage, _: &mut Context<Self>) {
        for running in self.running.values_mut() {
            running.waiters.retain(|waiter| waiter.request != request);
            if running.waiters.is_empty() {
                running.cancel = None;
            }
        }
    }
}

impl Handler<HoldImages> for ImageStore {
    type Result = ();
    fn handle(&mut self, HoldImages(held): HoldImages, ctx: &mut Context<Self>) {
        // A later agent process removes those that are used.
        let mut unused = std::mem::take(&mut self.damaged);
        for (container, digest) in held {
            unused.retain(|damaged| digest.as_ref().is_some_and(|digest| digest != damaged));
            let Some(digest) = digest else {
                for entry in self.images.values_mut() {
                    entry.users.insert(container.clone());
                }
                continue;
            };
            match self.images.get_mut(&digest) {
                Some(entry) => drop(entry.users.insert(container)),
                None => tracing::warn!(%container, %digest, "image of a container is missing"),
            }
        }
        self.is_recovered = true;
        if !unused.is_empty() {
            let removing = self.remove(unused, ctx.node());
            ctx.then(removing, |_, _, _| {});
        }
    }
}

impl Handler<ReleaseImages> for ImageStore {
    type Result = ();
    fn handle(&mut self, ReleaseImages(container): ReleaseImages, ctx: &mut Context<Self>) {
        let now = ctx.clock().wall();
        let mut is_changed = false;
        for entry in self.images.values_mut() {
            if entry.users.remove(&container) {
                entry.last_used = now;
                is_changed = true;
            }
        }
        if is_changed {
            self.write_index(ctx);
        }
    }
}

impl Handler<ListImages> for ImageStore {
    type Result = MessageResult<ListImages>;
    fn handle(&mut self, _: ListImages, _: &mut Context<Self>) -> Self::Result {
        let summary = |(digest, entry): (&Digest, &Entry)| ImageSummary {
            digest: digest.clone(),
            names: { self.names.iter() }
                .filter(|(_, of)| *of == digest)
                .map(|(name, _)| name.to_string())
                .collect(),
            bytes: entry.image.size.bytes,
            last_used: entry.last_used,
            users: entry.users.iter().cloned().collect(),
        };
        MessageResult(self.images.iter().map(summary).collect())
    }
}

impl Handler<PruneImages> for ImageStore {
    type Result = ResponseFuture<Result<Vec<Digest>, String>>;
    fn handle(&mut self, message: PruneImages, ctx: &mut Context<Self>) -> Self::Result {
        if !self.is_recovered {
            let early = "the agent is recovering: try again later".to_owned();
            return Box::pin(async { Err(early) });
        }
        let wrong = { message.excluded.iter() }.find_map(|name| Reference::parse(name).err());
        if let Some(wrong) = wrong {
            return Box::pin(async { Err(wrong) });
        }
        let mut excluded = message.excluded;
        excluded.extend(self.pulls.settings.retention.excluded.iter().cloned());
        let mut removed = self.kept(&excluded);
        removed.retain(|image| !image.must_stay);
        let removed = removed.into_iter().map(|image| image.digest).collect();
        let removing = self.remove(removed, ctx.node());
        self.write_index(ctx);
        Box::pin(async { Ok(removing.await) })
    }
}
