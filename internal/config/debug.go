package config

// Debug says where the debug endpoints are, if anywhere.
type Debug struct {
	Listen    string `yaml:"listen" check:"optionalhostport" doc:"Address that profiles and variables are served at, such as 127.0.0.1:6060. Without one they are not there. One that is not on a loopback address wants a token."`
	TokenFile string `yaml:"token_file" check:"optionalpath" doc:"File of the token that the debug endpoints ask for; $CIMETER_DEBUG_TOKEN wins over it. Must not be readable by everybody."`
}
