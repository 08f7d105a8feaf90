//! The bulk half of an inbox: a large message is announced in order, comes on a stream of its own, and whatever follows it to the same actor
//! waits for it here.
//!
//! Never lets a later message overtake an announced one; bounded by the inbox's own bounds.

use super::*;

impl Delivery<'_> {
    pub(super) fn announced(
        &mut self,
        token: u64,
        length: u64,
        header: &[u8],
    ) -> Result<(), Garbled> {
        if length > BODY_MAX as u64 {
            return Err(Garbled::new(format!(
                "bulk of {length} bytes, expected at most {BODY_MAX}"
            )));
        }
        if self.inbox.announced.len() >= BULKS_MAX || self.inbox.announced.contains_key(&token) {
            return Err(Garbled::new(format!(
                "bulk {token} is announced twice or is one of too many"
            )));
        }
        match Frame::read(header)? {
            Frame::Letter(letter) => {
                // A bulk to nobody is read and dropped when it comes, but nothing waits for it.
                if let Some(entry) = self.find(&letter) {
                    let incarnation = entry.pid.incarnation();
                    self.inbox.hold(incarnation, Held::Awaited(token))?;
                }
            }
            Frame::Reply { outcome: Ok(_), .. } => {}
            other => return Err(Garbled::new(format!("bulk announced for {other:?}"))),
        }
        self.inbox.grow(header.len())?;
        self.inbox
            .announced
            .insert(token, (header.to_vec(), length));
        match self.inbox.early.remove(&token) {
            Some(body) => {
                self.inbox.held_bytes -= body.len();
                self.bulk(token, body)
            }
            None => Ok(()),
        }
    }

    pub(super) fn bulk(&mut self, token: u64, body: Bytes) -> Result<(), Garbled> {
        let Some((header, length)) = self.inbox.announced.remove(&token) else {
            if self.inbox.early.len() >= BULKS_MAX || self.inbox.early.contains_key(&token) {
                return Err(Garbled::new(format!(
                    "bulk {token} came twice or is one of too many"
                )));
            }
            self.inbox.grow(body.len())?;
            self.inbox.early.insert(token, body);
            return Ok(());
        };
        self.inbox.held_bytes -= header.len();
        if body.len() as u64 != length {
            let reason = format!(
                "bulk {token} has {} bytes, announced were {length}",
                body.len()
            );
            return Err(Garbled { reason });
        }
        match Frame::read(&header)? {
            Frame::Reply { correlation, .. } => self.connection.replied(correlation, Ok(&body)),
            Frame::Letter(letter) => match self.place_of(token) {
                Some((incarnation, place)) => {
                    self.inbox.grow(header.len() + body.len())?;
                    if let Some(queue) = self.inbox.held.get_mut(&incarnation) {
                        queue[place] = Held::Arrived {
                            header: header.clone(),
                            body,
                        };
                    }
                    self.release(incarnation)?;
                }
                None => self.open(&Letter {
                    body: &body,
                    ..letter
                })?,
            },
            _ => {}
        }
        self.release_exits()
    }

    /// Where in which queue the bulk's place is.
    pub(super) fn place_of(&self, token: u64) -> Option<(u64, usize)> {
        self.inbox.held.iter().find_map(|(incarnation, queue)| {
            let place = queue
                .iter()
                .position(|held| matches!(held, Held::Awaited(other) if *other == token));
            place.map(|place| (*incarnation, place))
        })
    }

    /// Opens what waited for this actor, up to the next bulk that has not arrived.
    pub(super) fn release(&mut self, incarnation: u64) -> Result<(), Garbled> {
        loop {
            let Some(queue) = self.inbox.held.get_mut(&incarnation) else {
                return Ok(());
            };
            let held = match queue.pop_front() {
                Some(Held::Awaited(token)) => {
                    queue.push_front(Held::Awaited(token));
                    return Ok(());
                }
                Some(held) => held,
                None => {
                    self.inbox.held.remove(&incarnation);
                    return Ok(());
                }
            };
            self.inbox.held_bytes -= held.size();
            let (header, body) = match &held {
                Held::Arrived { header, body } => (&header[..], Some(&body[..])),
                Held::Frame(frame) => (&frame[..], None),
                Held::Awaited(_) => continue,
            };
            if let Frame::Letter(letter) = Frame::read(header)? {
                let body = body.unwrap_or(letter.body);
                self.open(&Letter { body, ..letter })?;
            }
        }
    }

    /// Tells the exits before which no bulk is missing any more.
    pub(super) fn release_exits(&mut self) -> Result<(), Garbled> {
        while let Some((newest, _)) = self.inbox.exits.front() {
            let missing = self
                .inbox
                .announced
                .keys()
                .next()
                .is_some_and(|oldest| oldest <= newest);
            if missing {
                return Ok(());
            }
            let Some((_, bytes)) = self.inbox.exits.pop_front() else {
                return Ok(());
            };
            self.inbox.held_bytes -= bytes.len();
            if let Frame::Exited { of, reason } = Frame::read(&bytes)? {
                let pid = Pid::new(of.name, self.connection.peer.node.clone(), of.incarnation);
                self.node.ended_elsewhere(&pid, &reason);
            }
        }
        Ok(())
    }
}
