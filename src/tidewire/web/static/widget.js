"use strict";(()=>{var r=["assets/chunk-IJPJLTGJ.js"];var{src:c}=document.currentScript,t=new URL(c).origin;for(let e of["assets/widget-RZU45OKD.js",...r]){let n=document.createElement("link");n.rel="modulepreload",n.href=`${t}/${e}`,document.head.append(n)}import(`${t}/assets/widget-RZU45OKD.js`).then(({define:e})=>e(t));})();
//terser 5.51.2
