package dronedb

import (
	"database/sql/driver"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/go-sql-driver/mysql"
)

// mysqlConnector reads mysql://user:password@host:port/name?tls=true, and mysql://
// with a data source as Drone has it. The error wraps [cimeter.ErrInvalid] and holds
// nothing of the address, in which the password stands.
func mysqlConnector(address string) (driver.Connector, error) {
	bad := fmt.Errorf("the address cannot be read: want mysql://user:password@host/name or mysql://user:password@tcp(host:3306)/name: %w", cimeter.ErrInvalid)
	source := strings.TrimPrefix(address, "mysql://")
	c, err := mysql.ParseDSN(source)
	if !strings.Contains(source, "@tcp(") && !strings.Contains(source, "@unix(") {
		c, err = fromURL(address)
	}
	if err != nil || c.DBName == "" {
		return nil, bad
	}
	c.Timeout, c.ReadTimeout, c.WriteTimeout = patience, patience, patience
	c.ParseTime, c.MultiStatements, c.AllowAllFiles = false, false, false
	c.Logger = &mysql.NopLogger{}
	m, err := mysql.NewConnector(c)
	if err != nil {
		return nil, bad
	}
	return m, nil
}

// fromURL reads an address with a host, or with a query socket=PATH instead of it.
func fromURL(address string) (*mysql.Config, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	where := "unix(" + q.Get("socket") + ")"
	if q.Get("socket") == "" {
		port := u.Port()
		if port == "" {
			port = "3306"
		}
		where = "tcp(" + net.JoinHostPort(u.Hostname(), port) + ")"
	}
	q.Del("socket")
	c, err := mysql.ParseDSN("@" + where + "/?" + q.Encode())
	if err != nil {
		return nil, err
	}
	c.User, c.DBName = u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	return c, nil
}
