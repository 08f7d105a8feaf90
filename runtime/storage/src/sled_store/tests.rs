//! What a store on sled promises, shown over crashes between any two writes.
