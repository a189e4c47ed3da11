//! The state of ten rooms, and how calls change it.

use serde::Deserialize;

/// A call, as the grammar `host-demo/models/commands.gbnf` defines it.
#[derive(Deserialize)]
struct Call {
    device: Device,
    room: Option<Room>,
    action: Option<Action>,
    value: Option<u8>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Device {
    Light,
    Heating,
    Blinds,
    None,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Room {
    Kitchen,
    #[serde(rename = "living room")]
    LivingRoom,
    Bedroom,
    Bathroom,
    Hall,
    Office,
    Nursery,
    Garage,
    Cellar,
    Attic,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    On,
    Off,
    Set,
    Up,
    Down,
    Open,
    Close,
}

/// Light and blinds in percent, heating in degrees. A device that is off has the value 0.
#[derive(Clone, Copy, Default)]
struct Devices {
    light: u8,
    heating: u8,
    blinds: u8,
}

#[derive(Default)]
pub struct Home {
    rooms: [Devices; 10],
}

impl Home {
    /// Carries out a call.
    pub fn apply(&mut self, call: &str) -> Result<(), serde_json_core::de::Error> {
        let (call, _) = serde_json_core::from_str::<Call>(call)?;
        let Some(devices) = call.room.and_then(|room| self.rooms.get_mut(room as usize)) else { return Ok(()) };
        let value = call.value.unwrap_or(0);
        let (level, on, most) = match call.device {
            Device::Light => (&mut devices.light, 100, 100),
            Device::Heating => (&mut devices.heating, 20, 30),
            Device::Blinds => (&mut devices.blinds, 100, 100),
            Device::None => return Ok(()),
        };
        *level = match call.action {
            Some(Action::On | Action::Open) => on,
            Some(Action::Off | Action::Close) => 0,
            Some(Action::Set) => value,
            Some(Action::Up) => level.saturating_add(value).min(most),
            Some(Action::Down) => level.saturating_sub(value),
            None => return Ok(()),
        };
        Ok(())
    }

    /// True if a light is on anywhere.
    pub fn is_lit(&self) -> bool {
        self.rooms.iter().any(|devices| devices.light > 0)
    }
}
