//! The verbs that change reservations and volumes of an agent: `meros reserve | unreserve` and
//! `meros volume create | grow | shrink | destroy`.
//!
//! The disk for a volume is searched in the agent's resources, so that the operator need not spell
//! out its reservation. Requests go to the leader, which validates them.

use clap::{Args, Subcommand};
use protocol::AgentId;
use protocol::message::operator::Operate;
use protocol::view::AgentView;
use resources::{
    Conversion, DiskInfo, Label, Labels, Name, Reservation, Resource, Resources, Role, Scalar,
};

use super::{ClusterFlags, Operator};
use crate::output::error::{CliError, Outcome};
use crate::{flags, out};

const RESERVE_HELP: &str = "\
Examples (`meros agents` shows the ids):
  meros reserve AGENT 'cpus:4;mem:4096' --role ads --principal ops
  meros unreserve AGENT 'cpus:4;mem:4096' --role ads --principal ops";

const VOLUME_HELP: &str = "\
Examples:
  meros reserve AGENT disk:1024 --role ads
  meros volume create AGENT data 512 --role ads
  meros volume grow AGENT data 256
  meros volume shrink AGENT data 128
  meros volume destroy AGENT data";

/// `meros reserve` and `meros unreserve`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case", after_help = RESERVE_HELP)]
pub struct ReserveArgs {
    /// The agent's id, as `meros agents` shows it
    agent: AgentId,
    /// The resources, as `cpus:4;mem:4096` or as JSON with their reservations
    resources: Resources,
    /// The role; it refines reservations that the resources already have
    #[arg(long, required_unless_present = "as_given")]
    role: Option<Role>,
    /// The principal that reserves: the name in this command's certificate, which is issued if the
    /// authority's key is available
    #[arg(long, value_name = "NAME", requires = "role")]
    principal: Option<String>,
    /// A label; reservations with different labels are never merged
    #[arg(long, value_name = "KEY=VALUE", value_parser = flags::pair, requires = "role")]
    label: Vec<(String, String)>,
    /// The resources contain their complete reservations
    #[arg(long, conflicts_with = "role")]
    as_given: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Create, resize and destroy persistent volumes, which outlive the tasks that use them
#[derive(Subcommand, Debug)]
#[command(after_help = VOLUME_HELP)]
pub enum VolumeArgs {
    /// Create a volume from disk that is reserved for a role
    #[command(after_help = VOLUME_HELP)]
    Create(CreateArgs),
    /// Enlarge a volume with disk that has the same reservation
    #[command(after_help = "Example: meros volume grow AGENT data 256")]
    Grow(ResizeArgs),
    /// Shrink a volume; the freed disk remains reserved
    #[command(after_help = "Example: meros volume shrink AGENT data 128")]
    Shrink(ResizeArgs),
    /// Destroy a volume and its content
    #[command(after_help = "Example: meros volume destroy AGENT data")]
    Destroy(DestroyArgs),
}

/// `meros volume create`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct CreateArgs {
    /// The agent's id, as `meros agents` shows it
    agent: AgentId,
    /// The volume's id, unique for the role on this agent
    id: String,
    /// Its size in megabytes
    #[arg(value_name = "MB", value_parser = megabytes)]
    size: Scalar,
    /// The role of the reserved disk
    #[arg(long)]
    role: Role,
    /// Path in the tasks' sandboxes [default: its id]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// The principal that creates it: the name in this command's certificate, which is issued if
    /// the authority's key is available
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Allow several tasks to use it at the same time
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// An existing volume.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
struct VolumeFlags {
    /// The agent's id, as `meros agents` shows it
    agent: AgentId,
    /// The volume's id
    id: String,
    /// Its role, if several roles have a volume with this id there
    #[arg(long)]
    role: Option<Role>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// `meros volume grow` and `meros volume shrink`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct ResizeArgs {
    #[command(flatten)]
    volume: VolumeFlags,
    /// The difference in megabytes
    #[arg(value_name = "MB", value_parser = megabytes)]
    by: Scalar,
}

/// `meros volume destroy`.
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct DestroyArgs {
    #[command(flatten)]
    volume: VolumeFlags,
}

fn megabytes(text: &str) -> Result<Scalar, String> {
    text.parse::<Scalar>().map_err(|error| error.to_string())
}

/// `meros reserve`.
pub async fn reserve(args: ReserveArgs) -> Outcome {
    let resources = with_reservation(&args)?;
    let conversion = Conversion::Reserve {
        resources: resources.clone(),
    };
    change_reservation(&args, conversion).await?;
    out!("reserved on {}: {}", args.agent, resources.brief());
    Ok(())
}

/// `meros unreserve`.
pub async fn unreserve(args: ReserveArgs) -> Outcome {
    let resources = with_reservation(&args)?;
    let conversion = Conversion::Unreserve {
        resources: resources.clone(),
    };
    change_reservation(&args, conversion).await?;
    out!(
        "no longer reserved on {}: {}",
        args.agent,
        resources.brief()
    );
    Ok(())
}

async fn change_reservation(args: &ReserveArgs, conversion: Conversion) -> Outcome {
    let operator = Operator::connect_as(&args.cluster, args.principal.as_deref()).await?;
    let done = operate(&operator, &args.agent, conversion).await;
    operator.close().await;
    done
}

/// The resources with the reservation of the flags.
fn with_reservation(args: &ReserveArgs) -> Outcome<Resources> {
    let Some(role) = &args.role else {
        return Ok(args.resources.clone());
    };
    let label = |(key, value): &(String, String)| Label {
        key: key.clone(),
        value: Some(value.clone()),
    };
    let reservation = Reservation {
        labels: Labels::new(args.label.iter().map(label).collect()),
        ..Reservation::dynamic(role.clone(), args.principal.as_deref())
    };
    let owned = args.resources.push_reservation(&reservation);
    owned.map_err(|error| CliError::usage(error.to_string()))
}

/// `meros volume`.
pub async fn volume(args: VolumeArgs) -> Outcome {
    let (cluster, id, principal) = match &args {
        VolumeArgs::Create(args) => (&args.cluster, &args.agent, args.principal.as_deref()),
        VolumeArgs::Grow(ResizeArgs { volume, .. })
        | VolumeArgs::Shrink(ResizeArgs { volume, .. })
        | VolumeArgs::Destroy(DestroyArgs { volume }) => (&volume.cluster, &volume.agent, None),
    };
    let operator = Operator::connect_as(cluster, principal).await?;
    let done = async {
        let view = operator.view().await?;
        let agent = view.agents.iter().find(|agent| agent.id == *id);
        let agent = agent.ok_or_else(|| {
            CliError::new(format!("agent {id} is not registered")).next("`meros agents` shows all")
        })?;
        let conversion = conversion(agent, &args)?;
        operate(&operator, id, conversion.clone()).await?;
        Ok(conversion)
    }
    .await;
    operator.close().await;
    out!("{}", result_text(&done?, id));
    Ok(())
}

/// The requested conversion of the agent's resources.
fn conversion(agent: &AgentView, args: &VolumeArgs) -> Outcome<Conversion> {
    match args {
        VolumeArgs::Create(args) => created(agent, args),
        VolumeArgs::Grow(args) => grown(agent, args),
        VolumeArgs::Shrink(args) => Ok(Conversion::ShrinkVolume {
            volume: found(agent, &args.volume)?.clone(),
            subtract: args.by,
        }),
        VolumeArgs::Destroy(args) => Ok(destroyed(found(agent, &args.volume)?)),
    }
}

/// The result for the operator.
fn result_text(done: &Conversion, agent: &AgentId) -> String {
    let converted = done.step().map(|step| step.converted).unwrap_or_default();
    let mut volumes = converted.iter().filter_map(|one| {
        let id = persistence(one)?;
        Some(format!("volume {id} of {} MB on {agent}", one.amount()?))
    });
    volumes.next().unwrap_or_else(|| {
        let named = done.named();
        let id = named.iter().find_map(persistence).unwrap_or_default();
        format!("volume {id} on {agent} is destroyed")
    })
}

/// The volume to create, from the first disk of the role that is large enough.
fn created(agent: &AgentView, args: &CreateArgs) -> Outcome<Conversion> {
    let fits = |one: &&Resource| {
        one.is(&Name::Disk)
            && one.is_reserved()
            && *one.role() == args.role
            && !one.is_persistent_volume()
            && one.amount().is_some_and(|amount| amount >= args.size)
    };
    let disk = agent.info.resources.iter().find(fits).ok_or_else(|| {
        let (id, role) = (&agent.id, &args.role);
        CliError::new(format!(
            "agent {id} has no disk of {} MB reserved for {role}",
            args.size
        ))
        .next("`meros reserve` reserves some")
    })?;
    let mut annotations = disk.annotations().clone();
    let path = args.path.clone().unwrap_or_else(|| args.id.clone());
    annotations.disk = Some(Box::new(DiskInfo {
        source: annotations.disk.and_then(|disk| disk.source),
        ..DiskInfo::persistent(&args.id, args.principal.as_deref(), path)
    }));
    annotations.shared = args.shared;
    // An indivisible disk becomes one volume.
    let size = match disk.is_indivisible() {
        true => disk.amount().unwrap_or(args.size),
        false => args.size,
    };
    let volume = Resource::annotated(Name::Disk, size, annotations);
    let volume = volume.map_err(|error| CliError::usage(error.to_string()))?;
    Ok(Conversion::Create {
        volumes: volume.into(),
    })
}

/// The volume, and additional disk of the same kind with the same reservations.
fn grown(agent: &AgentView, args: &ResizeArgs) -> Outcome<Conversion> {
    let invalid = |error: &dyn std::fmt::Display| CliError::usage(error.to_string());
    let volume = found(agent, &args.volume)?;
    // The disk that its destruction would leave is the kind to add.
    let step = destroyed(volume).step().map_err(|error| invalid(&error))?;
    let disk = step.converted.iter().next();
    let annotations = disk.map(|disk| disk.annotations().clone());
    let addition = Resource::annotated(Name::Disk, args.by, annotations.unwrap_or_default());
    Ok(Conversion::GrowVolume {
        volume: volume.clone(),
        addition: addition.map_err(|error| invalid(&error))?,
    })
}

fn destroyed(volume: &Resource) -> Conversion {
    Conversion::Destroy {
        volumes: volume.clone().into(),
    }
}

/// The id of a volume.
fn persistence(volume: &Resource) -> Option<&str> {
    let disk = volume.annotations().disk.as_ref()?;
    Some(&disk.persistence.as_ref()?.id)
}

/// The only volume that matches.
fn found<'a>(agent: &'a AgentView, named: &VolumeFlags) -> Outcome<&'a Resource> {
    let is_meant = |one: &&Resource| {
        persistence(one) == Some(named.id.as_str())
            && named.role.as_ref().is_none_or(|role| role == one.role())
    };
    let mut meant = agent.info.resources.iter().filter(is_meant);
    let (found, id) = ((meant.next(), meant.next()), &agent.id);
    match found {
        (Some(volume), None) => Ok(volume),
        (None, _) => Err(CliError::new(format!(
            "agent {id} has no volume {}",
            named.id
        ))),
        (Some(one), Some(other)) => Err(CliError::new(format!(
            "agent {id} has a volume {} of {} and one of {}",
            named.id,
            one.role(),
            other.role()
        ))
        .next("name one with --role")),
    }
}

async fn operate(operator: &Operator, agent: &AgentId, conversion: Conversion) -> Outcome {
    let question = Operate {
        agent_id: agent.clone(),
        conversion,
    };
    let done = operator.ask(question).await?;
    done.map_err(|error| CliError::because("nothing was changed", &error))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use protocol::AgentInfo;
    use runtime::Timestamp;
    use testkit::assert_contains;

    use super::*;

    #[derive(Parser)]
    struct Reserve {
        #[command(flatten)]
        args: ReserveArgs,
    }

    #[derive(Parser)]
    struct Volumes {
        #[command(subcommand)]
        args: VolumeArgs,
    }

    fn agent(resources: Resources) -> AgentView {
        AgentView {
            id: AgentId::new("a").unwrap(),
            info: AgentInfo::new("host", resources),
            address: "host:5051".to_owned(),
            active: true,
            orders: Default::default(),
            registered: Timestamp::default(),
            version: String::new(),
            oversubscribed: Default::default(),
            used: Default::default(),
            offered: Default::default(),
        }
    }

    fn reserved(words: &[&str]) -> Outcome<Resources> {
        let given = [&["reserve", "a"], words].concat();
        with_reservation(
            &Reserve::try_parse_from(given)
                .map_err(|error| CliError::new(error.to_string()))?
                .args,
        )
    }

    #[test]
    fn flags_describe_the_reservation() {
        let words = [
            "cpus:4;mem:64",
            "--role",
            "ads",
            "--principal",
            "ops",
            "--label",
            "team=blue",
        ];
        let resources = reserved(&words).unwrap();
        assert_eq!(resources.quantities().to_string(), "cpus:4;mem:64");
        for resource in &resources {
            let reservation = resource.reservation().unwrap();
            assert_eq!(reservation.principal.as_deref(), Some("ops"));
            assert_eq!(reservation.labels.iter().len(), 1);
        }
        assert!(Conversion::Reserve { resources }.step().is_ok());
        assert!(reserved(&["cpus:4"]).is_err(), "for whom?");
        assert!(reserved(&["cpus:4", "--role", "*"]).is_err());
    }

    #[test]
    fn volume_uses_the_roles_disk() {
        let owned = reserved(&["disk:100", "--role", "ads", "--principal", "ops"]).unwrap();
        let mut pool = owned + "disk:500;disk(ops):50".parse::<Resources>().unwrap();
        let volume = |words: &[&str], pool: &Resources| {
            let given = [&["volume"], words].concat();
            let args = Volumes::try_parse_from(given).unwrap_or_else(|error| panic!("{error}"));
            conversion(&agent(pool.clone()), &args.args)
        };
        let made = volume(&["create", "a", "data", "60", "--role", "ads"], &pool).unwrap();
        let total = pool.clone();
        made.apply(&mut pool, &total).unwrap();
        assert_eq!(
            pool.persistent_volumes().quantities().to_string(),
            "disk:60"
        );
        let failure = volume(&["create", "a", "more", "60", "--role", "ads"], &pool);
        assert_contains!(
            failure.unwrap_err().to_string(),
            "no disk of 60 MB reserved for ads"
        );

        let id = AgentId::new("a").unwrap();
        for (words, says) in [
            (["grow", "a", "data", "30"], "volume data of 90 MB on a"),
            (["shrink", "a", "data", "20"], "volume data of 70 MB on a"),
        ] {
            let resized = volume(&words, &pool).unwrap();
            let total = pool.clone();
            resized.apply(&mut pool, &total).unwrap();
            assert_eq!(result_text(&resized, &id), says);
        }
        let volumes = pool.persistent_volumes().quantities().to_string();
        assert_eq!(
            (volumes.as_str(), result_text(&made, &id)),
            ("disk:70", "volume data of 60 MB on a".to_owned())
        );
        let too_much = volume(&["grow", "a", "data", "31"], &pool).unwrap();
        assert!(too_much.apply(&mut pool.clone(), &pool).is_err());
        assert!(volume(&["shrink", "a", "none", "1"], &pool).is_err());

        let other = volume(&["create", "a", "data", "50", "--role", "ops"], &pool).unwrap();
        let total = pool.clone();
        other.apply(&mut pool, &total).unwrap();
        let failure = volume(&["destroy", "a", "data"], &pool)
            .unwrap_err()
            .to_string();
        assert!(failure.contains("--role"), "{failure}");
        let gone = volume(&["destroy", "a", "data", "--role", "ads"], &pool).unwrap();
        assert_eq!(result_text(&gone, &id), "volume data on a is destroyed");
        let total = pool.clone();
        gone.apply(&mut pool, &total).unwrap();
        assert_eq!(
            pool.persistent_volumes().quantities().to_string(),
            "disk:50"
        );
        assert!(volume(&["destroy", "a", "none"], &pool).is_err());
    }
}
