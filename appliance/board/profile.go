package board

import (
	"encoding/json"
	"slices"
	"time"
)

// Generic is the name of the profile that serves where no other fits.
const Generic = "generic"

// Profile is one board with the HATs it carries.
type Profile struct {
	Name  string   `json:"profile"` // of the profile's file, without .toml
	Model string   `json:"model"`   // as the box calls itself, else the profile's title
	HATs  []string `json:"hats"`    // names of the composed HAT profiles
	Panel *Panel   `json:"panel"`   // what the profile names, whether or not it is there; nil where it names none
	Keys  []Key    `json:"keys"`    //
	LEDs  []LED    `json:"leds"`    //
	Ports []Port   `json:"ports"`   //
	Why   []string `json:"why"`     // how all this was chosen, one sentence a step
}

// Known says whether the board was recognised (or named), so that its ports may be freed from their bridges unasked.
func (p Profile) Known() bool { return p.Name != Generic }

// Port is one jack of the board.
type Port struct {
	Role      string   `json:"role"`       // lan1, wan ...; unique within the profile
	Match     []string `json:"match"`      // whole components of the device's path, tried in order; see AssignRoles
	SpeedMbps int      `json:"speed_mbps"` // what the jack can do; 0: unknown
	Test      bool     `json:"test"`       // made for throughput tests
}

// Panel describes a display and how it is wired. It says nothing of whether it is there.
type Panel struct {
	Controller string   `json:"controller"` // one of the Controller constants
	Width      int      `json:"width"`      // pixels, as a person sees it with Rotate 0
	Height     int      `json:"height"`     //
	Bus        string   `json:"bus"`        // see ParseBus
	Addresses  []uint16 `json:"addresses"`  // 7-bit I2C addresses, tried in order; empty on SPI
	Colour     bool     `json:"colour"`     // follows from the controller
	Optional   bool     `json:"optional"`   // its absence is worth a mention, but no fault

	SpeedHz   int      `json:"speed_hz"`  // SPI clock; 0: the driver's own
	Chips     []string `json:"chips"`     // labels of the GPIO chip that holds the pins, tried in order
	DC        *int     `json:"dc"`        // line offsets on that chip; nil: not wired
	Reset     *int     `json:"reset"`     //
	Backlight *int     `json:"backlight"` //

	ColumnOffset int    `json:"column_offset"` // of the glass within the controller's memory
	RowOffset    int    `json:"row_offset"`    //
	Rotate       int    `json:"rotate"`        // 0 or 180, how the panel is mounted; the config's rotate comes on top
	Order        string `json:"order"`         // rgb or bgr, for colour panels
	Scan         int    `json:"scan"`          // bits 7-5 of ST77xx MADCTL (MY MX MV)
	Sequential   bool   `json:"sequential"`    // COM lines wired in sequence (SSD1306 128x32), not alternating
	Contrast     *int   `json:"contrast"`      // 0-255; nil: the driver's own
}

// Controllers that a profile may name.
const (
	SSD1306 = "ssd1306"
	SH1106  = "sh1106"
	SSD1351 = "ssd1351"
	ST7735  = "st7735"
	ST7789  = "st7789"
)

// controller holds what the data sheets say of the memory and the interfaces of each controller.
type controller struct {
	width, height int // of its memory
	colour        bool
	i2c           []uint16 // addresses its straps can give it; nil: SPI only
}

var controllers = map[string]controller{
	SSD1306: {128, 64, false, []uint16{0x3c, 0x3d}},
	SH1106:  {132, 64, false, []uint16{0x3c, 0x3d}},
	SSD1351: {128, 128, true, nil},
	ST7735:  {132, 162, true, nil},
	ST7789:  {240, 320, true, nil},
}

// KeyNames are the keys the appliance knows. A press of any real key means one of them.
var KeyNames = []string{"up", "down", "left", "right", "select", "back", "k1", "k2", "k3"}

// Key is one real key and what pressing it means. It is found either by Codes (evdev) or by Line (GPIO), never by
// both.
type Key struct {
	Label    string        `json:"label"`   // as printed on the box; may be empty
	Short    string        `json:"short"`   // one of KeyNames: what a short press means
	Long     string        `json:"long"`    // what a long press means; "": nothing, so Short may fire on the press
	Codes    []Code        `json:"codes"`   // evdev: any of these, or AnyCode alone
	Devices  []string      `json:"devices"` // names of the input devices, any of them
	Line     *Line         `json:"line"`
	Active   Level         `json:"active"`      // level of a pressed key; GPIO lines only
	Pull     Pull          `json:"pull"`        // bias to ask for; GPIO lines only
	Debounce time.Duration `json:"debounce_ms"` // milliseconds in JSON; GPIO lines only
}

// Line is a GPIO line: the chip is known by its label because chip numbers differ between kernels.
type Line struct {
	Chips  []string `json:"chips"` // labels, tried in order
	Offset int      `json:"offset"`
}

// Level is the electrical level of a line.
type Level string

// The two levels.
const (
	Low  Level = "low"
	High Level = "high"
)

// Pull is the bias of an input line.
type Pull string

// The three biases; PullNone leaves what the board has.
const (
	PullUp   Pull = "up"
	PullDown Pull = "down"
	PullNone Pull = "none"
)

// LED is one lamp under the names that different kernels give it in /sys/class/leds.
type LED struct {
	Role  string   `json:"role"`  // power or activity (one lamp for the box), or the role of a port
	Names []string `json:"names"` // tried in order
}

// MarshalJSON writes the debounce time in milliseconds.
func (k Key) MarshalJSON() ([]byte, error) {
	type plain Key // without this method
	return json.Marshal(struct {
		plain
		Debounce float64 `json:"debounce_ms"`
	}{plain(k), float64(k.Debounce) / float64(time.Millisecond)})
}

// MarshalJSON writes every list as an array, also the empty ones.
func (p Profile) MarshalJSON() ([]byte, error) {
	type plain Profile
	q := plain(p)
	q.HATs, q.Keys, q.LEDs = notNil(q.HATs), notNil(q.Keys), notNil(q.LEDs)
	q.Ports, q.Why = notNil(q.Ports), notNil(q.Why)
	return json.Marshal(q)
}

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// clone copies a panel so that two profiles share nothing.
func (p *Panel) clone() *Panel {
	if p == nil {
		return nil
	}
	q := *p
	q.Addresses, q.Chips = slices.Clone(p.Addresses), slices.Clone(p.Chips)
	return &q
}
