// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// OAuthAppName is the name of an OAuth app.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=40
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="must be the name of an OAuth app: lower-case letters, digits and '-'"
type OAuthAppName string

// OAuthScope is a scope of an access token (RFC 6749, section 3.3).
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self.matches('^[!#-\\\\[\\\\]-~]+$')",message="must be one scope: printable ASCII characters without spaces, quotes and backslashes"
type OAuthScope string

// OAuthApp is a client registration at an authorization server. Runners get access tokens with it (OAuth 2.0 client
// credentials, RFC 6749, section 4.4), and send them with the requests of tools and MCP servers that name it.
type OAuthApp struct {
	// Name is the name that HTTP tools, OpenAPI tools and MCP servers use as oauth_app.
	//
	// +required
	Name OAuthAppName `json:"name"`

	// TokenURL is the token endpoint of the authorization server. Its address must be allowed for tools.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https://[^/?#@\\\\s]+([/?][^#\\\\s]*)?$')",message="must be an https:// URL without credentials and fragment, because the client secret is sent to it"
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getHostname() != ''",message="must be a valid URL: check its host, its port and its % escapes"
	TokenURL string `json:"tokenURL"`

	// ClientID is the ID of the client, readable to anyone who can read this object.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ClientID string `json:"clientID"`

	// ClientSecretRef names the key of a Secret that holds the client secret.
	//
	// +required
	ClientSecretRef SecretKeyReference `json:"clientSecretRef"`

	// Scopes are the scopes of the token. Default: the scopes that the authorization server grants.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	Scopes []OAuthScope `json:"scopes,omitempty"`

	// Audience is the parameter audience of the token request, which some authorization servers need.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Audience string `json:"audience,omitempty"`
}
