//! Images and volumes of containers.

use std::collections::BTreeMap;

use crate::message::{enums, messages};
use crate::schema::{Credential, Labels, Parameters, Secret};

messages! {
    /// An image for a container.
    Image {
        1 r#type: ImageType,
        2 appc: Option<Box<ImageAppc>>,
        3 docker: Option<Box<ImageDocker>>,
        /// Whether a cached image is acceptable.
        4 cached: Option<bool> = Bool(true),
    }

    /// An image of appc.
    ImageAppc {
        1 name: String,
        /// As `sha512-...`.
        2 id: Option<String>,
        3 labels: Option<Labels>,
    }

    /// An image of Docker.
    ImageDocker {
        1 name: String,
        /// Deprecated.
        2 credential: Option<Credential>,
        /// The content of Docker's `config.json`, for registries with authentication.
        3 config: Option<Box<Secret>>,
    }

    /// A directory or file in a container.
    Volume {
        1 container_path: String,
        /// Its source.
        2 host_path: Option<String>,
        3 mode: VolumeMode,
        /// Its source.
        4 image: Option<Image>,
        /// Its source.
        5 source: Option<Box<VolumeSource>>,
    }

    /// The source of a mount.
    VolumeSource {
        1 r#type: Option<VolumeSourceType>,
        2 docker_volume: Option<Box<VolumeSourceDockerVolume>>,
        3 sandbox_path: Option<VolumeSourceSandboxPath>,
        4 secret: Option<Box<Secret>>,
        5 host_path: Option<VolumeSourceHostPath>,
        6 csi_volume: Option<VolumeSourceCSIVolume>,
        /// For type `TMPFS`.
        1000 tmpfs: Option<VolumeSourceTmpfs>,
    }

    /// A new directory in memory, specific to Meros.
    VolumeSourceTmpfs {
        /// Bytes that its files can have; absent: the memory of the container.
        1 size: Option<u64>,
        /// Permissions in octal digits; absent: 1777.
        2 mode: Option<String>,
    }

    /// A volume of a Docker driver.
    VolumeSourceDockerVolume {
        1 driver: Option<String>,
        2 name: String,
        3 driver_options: Option<Parameters>,
    }

    /// A path of the host.
    VolumeSourceHostPath {
        1 path: String,
        2 mount_propagation: Option<MountPropagation>,
    }

    /// A path in a sandbox.
    VolumeSourceSandboxPath {
        1 r#type: Option<VolumeSourceSandboxPathType>,
        2 path: String,
    }

    /// A volume of a CSI plug-in.
    VolumeSourceCSIVolume {
        1 plugin_name: String,
        2 static_provisioning: Option<Box<VolumeSourceCSIVolumeStaticProvisioning>>,
    }

    /// How a CSI volume is used.
    VolumeSourceCSIVolumeVolumeCapability {
        1 block: Option<VolumeSourceCSIVolumeVolumeCapabilityBlockVolume>,
        2 mount: Option<VolumeSourceCSIVolumeVolumeCapabilityMountVolume>,
        3 access_mode: VolumeSourceCSIVolumeVolumeCapabilityAccessMode,
    }

    /// As a block device.
    VolumeSourceCSIVolumeVolumeCapabilityBlockVolume {}

    /// As a file system.
    VolumeSourceCSIVolumeVolumeCapabilityMountVolume {
        1 fs_type: Option<String>,
        2 mount_flags: Vec<String>,
    }

    /// Number and kind of users.
    VolumeSourceCSIVolumeVolumeCapabilityAccessMode {
        1 mode: VolumeSourceCSIVolumeVolumeCapabilityAccessModeMode,
    }

    /// An existing volume.
    VolumeSourceCSIVolumeStaticProvisioning {
        1 volume_id: String,
        2 volume_capability: VolumeSourceCSIVolumeVolumeCapability,
        3 node_stage_secrets: BTreeMap<String, Secret>,
        4 node_publish_secrets: BTreeMap<String, Secret>,
        5 volume_context: BTreeMap<String, String>,
    }

    /// Propagation of mounts.
    MountPropagation {
        1 mode: Option<MountPropagationMode>,
    }
}

enums! {
    /// Type of an image.
    ImageType {
        Appc = 1 "APPC",
        Docker = 2 "DOCKER",
    }

    /// Read-write or read-only.
    VolumeMode {
        Rw = 1 "RW",
        Ro = 2 "RO",
    }

    /// Type of a source.
    VolumeSourceType {
        Unknown = 0 "UNKNOWN",
        DockerVolume = 1 "DOCKER_VOLUME",
        SandboxPath = 2 "SANDBOX_PATH",
        Secret = 3 "SECRET",
        HostPath = 4 "HOST_PATH",
        CsiVolume = 5 "CSI_VOLUME",
        /// Specific to Meros.
        Tmpfs = 1000 "TMPFS",
    }

    /// The sandbox's owner.
    VolumeSourceSandboxPathType {
        Unknown = 0 "UNKNOWN",
        Itself = 1 "SELF",
        Parent = 2 "PARENT",
    }

    /// Number and kind of users.
    VolumeSourceCSIVolumeVolumeCapabilityAccessModeMode {
        Unknown = 0 "UNKNOWN",
        SingleNodeWriter = 1 "SINGLE_NODE_WRITER",
        SingleNodeReaderOnly = 2 "SINGLE_NODE_READER_ONLY",
        MultiNodeReaderOnly = 3 "MULTI_NODE_READER_ONLY",
        MultiNodeSingleWriter = 4 "MULTI_NODE_SINGLE_WRITER",
        MultiNodeMultiWriter = 5 "MULTI_NODE_MULTI_WRITER",
    }

    /// Propagation of mounts.
    MountPropagationMode {
        Unknown = 0 "UNKNOWN",
        HostToContainer = 1 "HOST_TO_CONTAINER",
        Bidirectional = 2 "BIDIRECTIONAL",
    }
}
